// tests: aligned memory: alignment, contents, what is kept, what is refused. This program counts what operator new hands out.
#include "kpd/base/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <vector>

#include "base/expect_error.h"
#include "base/replaced_new.h"

namespace {

std::atomic<int64_t> g_allocations{0};
std::atomic<int64_t> g_until_refusal{-1};  // allocations before the one that is refused; below 0: none is

}  // namespace

void kpd::testing::before_allocation() {
  g_allocations.fetch_add(1);
  if (g_until_refusal.load() >= 0 && g_until_refusal.fetch_sub(1) == 0) throw std::bad_alloc();
}

namespace kpd {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMost = std::numeric_limits<size_t>::max();

bool aligned(const void* p, size_t to) { return reinterpret_cast<uintptr_t>(p) % to == 0; }

template <class Fn>
int64_t allocations_of(const Fn& fn) {
  const int64_t before = g_allocations.load();
  fn();
  return g_allocations.load() - before;
}

TEST(MemoryBlock, IsAlignedToALineOrAHugePage) {
  for (const size_t n : {size_t{1}, size_t{63}, size_t{64}, size_t{100}, size_t{5000}, kHugePageBytes - 1}) {
    const MemoryBlock block(n);
    EXPECT_EQ(block.size(), n);
    EXPECT_TRUE(aligned(block.data(), kCacheLineBytes)) << n;
    std::memset(block.data(), 1, n);
  }
  for (const size_t n : {kHugePageBytes, kHugePageBytes + 1, 5 * kMiB}) {
    const MemoryBlock block(n);
    EXPECT_TRUE(aligned(block.data(), kHugePageBytes)) << n;
    block.data()[n - 1] = 1;
  }
  EXPECT_EQ(MemoryBlock().data(), nullptr);
  EXPECT_EQ(MemoryBlock(0).data(), nullptr);
}

TEST(MemoryBlock, IsZerosWhereAskedFor) {
  for (const size_t n : {size_t{100}, 3 * kMiB}) {
    for (int pass = 0; pass < 2; ++pass) {  // in the second likely the memory of the first
      const MemoryBlock block(n, Contents::kZeros);
      EXPECT_EQ(std::count(block.data(), block.data() + n, 0), static_cast<std::ptrdiff_t>(n));
      std::memset(block.data(), 7, n);
    }
  }
}

TEST(MemoryBlock, MovesItsBytes) {
  MemoryBlock a(100);
  uint8_t* const data = a.data();
  MemoryBlock b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size(), 100u);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: what is left is empty
  EXPECT_EQ(a.size(), 0u);
  MemoryBlock c(3 * kMiB);  // of another alignment, which goes with the bytes
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 100u);
}

TEST(MemoryBlock, RefusesAbsurdSizesByName) {
  EXPECT_KPD_ERROR(kOutOfMemory, "cannot allocate 18446744073709551615 bytes", MemoryBlock{kMost});
  EXPECT_KPD_ERROR(kOutOfMemory, "cannot allocate 9223372036854775808 bytes", MemoryBlock{size_t{1} << 63});
}

TEST(MemoryBlock, WhatTheSystemRefusesIsAnErrorWithTheSize) {
  EXPECT_KPD_ERROR(kOutOfMemory, "cannot allocate 12345 bytes", {
    g_until_refusal = 0;
    MemoryBlock{12345};
  });
}

TEST(AlignedBuffer, KeepsItsMemoryAndGrowsByHalf) {
  AlignedBuffer<float> buffer(1000);
  EXPECT_TRUE(aligned(buffer.data(), kCacheLineBytes));
  EXPECT_EQ(buffer.size(), 1000u);
  float* const data = buffer.data();
  EXPECT_EQ(allocations_of([&] {
              for (const size_t n : {1u, 1000u, 0u, 999u}) buffer.resize(n);
            }),
            0);
  EXPECT_EQ(buffer.data(), data);
  EXPECT_EQ(buffer.size(), 999u);
  buffer.resize(1001);
  EXPECT_EQ(allocations_of([&] { buffer.resize(1500); }), 0) << "a half more was taken";
  EXPECT_EQ(allocations_of([&] { buffer.resize(1501); }), 1);
  for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = 1;
  EXPECT_EQ(buffer.values().size(), 1501u);
}

TEST(AlignedBuffer, RefusesSizesThatOverflow) {
  AlignedBuffer<double> buffer(3);
  EXPECT_KPD_ERROR(kOutOfMemory, "cannot allocate 2305843009213693953 elements of 8 bytes", buffer.resize(kMost / 8 + 2));
  EXPECT_EQ(buffer.size(), 3u);
  EXPECT_KPD_ERROR(kOutOfMemory, "cannot allocate 8000 bytes", {
    g_until_refusal = 0;
    buffer.resize(1000);
  });
  EXPECT_EQ(buffer.size(), 0u) << "no more than it has";
}

TEST(Arena, PiecesAreAlignedAndApart) {
  Arena arena(4096);
  const size_t sizes[] = {1, 64, 65, 0, 3000, 4096, 10000, 7, 3 * kMiB, 5};
  std::vector<std::pair<uint8_t*, size_t>> pieces;
  for (size_t i = 0; i < std::size(sizes); ++i) {
    uint8_t* const p = arena.take(sizes[i]);
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(aligned(p, kCacheLineBytes)) << sizes[i];
    std::memset(p, static_cast<int>(i), sizes[i]);
    pieces.emplace_back(p, sizes[i]);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto [p, n] = pieces[i];
    EXPECT_EQ(std::count(p, p + n, static_cast<uint8_t>(i)), static_cast<std::ptrdiff_t>(n)) << "piece " << i;
  }
}

TEST(Arena, TakesWholeBlocksAndHugePages) {
  Arena arena(8 * kHugePageBytes);
  EXPECT_EQ(arena.bytes(), 0u);
  EXPECT_FALSE(arena.has_room(1));
  uint8_t* const first = arena.take(100);
  EXPECT_TRUE(aligned(first, kHugePageBytes));
  EXPECT_EQ(arena.bytes(), 8 * kHugePageBytes);
  EXPECT_TRUE(arena.has_room(7 * kHugePageBytes));
  EXPECT_FALSE(arena.has_room(8 * kHugePageBytes));
  for (int i = 0; i < 100; ++i) (void)arena.take(100);
  EXPECT_EQ(arena.bytes(), 8 * kHugePageBytes);
  (void)arena.take(9 * kHugePageBytes - 1000);
  EXPECT_EQ(arena.bytes(), 17 * kHugePageBytes) << "a larger piece has a block of its own";
}

TEST(Arena, TheSamePiecesAfterResetTakeNoMemory) {
  Arena arena(4096);
  const auto take_all = [&] {
    std::vector<uint8_t*> pieces;
    pieces.reserve(40);
    for (size_t i = 0; i < 40; ++i) pieces.push_back(arena.take(100 * i + i % 3 * 2000));
    return pieces;
  };
  const std::vector<uint8_t*> first = take_all();
  const size_t held = arena.bytes();
  for (int pass = 0; pass < 3; ++pass) {
    arena.reset();
    std::vector<uint8_t*> again;
    EXPECT_EQ(allocations_of([&] { again = take_all(); }), 1) << "the list of this test";
    EXPECT_EQ(again, first);
    EXPECT_EQ(arena.bytes(), held);
  }
  arena.reset();
  EXPECT_EQ(allocations_of([&] {
              for (int i = 0; i < 100; ++i) (void)arena.take(64);
            }),
            0)
      << "smaller ones fit in what is kept";
}

TEST(Arena, RefusesAbsurdSizesAndStaysAsItWas) {
  Arena arena(4096);
  uint8_t* const before = arena.take(64);
  EXPECT_KPD_ERROR(kOutOfMemory, "cannot allocate 18446744073709551615 bytes", arena.take(kMost));
  EXPECT_KPD_ERROR(kOutOfMemory, "cannot allocate 18446744073709551552 bytes", arena.take(kMost - 63));
  for (const int64_t allocation : {0, 1}) {  // the list of blocks and the block
    EXPECT_KPD_ERROR(kOutOfMemory, "cannot allocate 1000", {
      g_until_refusal = allocation;
      (void)arena.take(100001);
    });
  }
  EXPECT_EQ(arena.bytes(), 4096u);
  uint8_t* const after = arena.take(64);
  EXPECT_GT(after, before);
  EXPECT_LT(after, before + 4096) << "the block at hand goes on";
  std::memset(before, 1, 64);
}

TEST(Arena, Moves) {
  Arena a(4096);
  uint8_t* const piece = a.take(10);
  Arena b(64);
  (void)b.take(10);
  b = std::move(a);
  piece[9] = 1;
  EXPECT_EQ(b.bytes(), 4096u);
  EXPECT_EQ(b.take(1) > piece, true);
  (void)a.take(10);  // NOLINT: empty, and of use again
}

#if defined(__SANITIZE_ADDRESS__)
TEST(ArenaDeathTest, TheAddressSanitizerSeesWhatIsBesideAPiece) {
  Arena arena(4096);
  volatile uint8_t* const piece = arena.take(64);
  (void)arena.take(64);
  EXPECT_DEATH(piece[64] = 1, "AddressSanitizer");
  arena.reset();
  EXPECT_DEATH(piece[0] = 1, "AddressSanitizer");
}
#endif

}  // namespace
}  // namespace kpd
