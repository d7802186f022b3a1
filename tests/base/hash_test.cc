// tests: CRC-32 and SHA-256: published values, any length, alignment and split.
#include "kpd/base/hash.h"
#include "kpd/base/crc32.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/cpu.h"
#include "kpd/base/rng.h"

namespace kpd {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

uint32_t crc32_bit_by_bit(std::span<const uint8_t> bytes) {
  uint32_t v = 0xffffffffu;
  for (const uint8_t b : bytes) {
    v ^= b;
    for (int i = 0; i < 8; ++i) v = (v >> 1) ^ (0xedb88320u & (0u - (v & 1u)));
  }
  return ~v;
}

TEST(Crc32, KnownValues) {
  EXPECT_EQ(crc32({}), 0u);
  EXPECT_EQ(crc32(bytes_of("a")), 0xe8b7be43u);
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xcbf43926u);
  EXPECT_EQ(crc32(bytes_of("The quick brown fox jumps over the lazy dog")), 0x414fa339u);
}

TEST(Crc32, EveryLengthAlignmentAndInstructionSetAgreesWithTheDefinition) {
  std::vector<uint8_t> data(1400);
  CounterRng rng(5);
  for (auto& b : data) b = static_cast<uint8_t>(rng.next_u32());
  for (const std::string& isa : available_isas()) {
    set_isa(isa);
    for (size_t first = 0; first < 17; ++first) {
      for (size_t n = 0; n < 1300; n += n < 300 ? 1 : 37) {
        const std::span<const uint8_t> part(data.data() + first, n);
        ASSERT_EQ(crc32(part), crc32_bit_by_bit(part)) << isa << " " << first << " " << n;
      }
    }
  }
  set_isa(available_isas().front());
}

TEST(Crc32, ContinuesAcrossAnySplit) {
  std::vector<uint8_t> data(700);
  CounterRng rng(6);
  for (auto& b : data) b = static_cast<uint8_t>(rng.next_u32());
  const std::span<const uint8_t> all(data);
  for (size_t i = 0; i <= data.size(); ++i) {
    ASSERT_EQ(crc32(all.subspan(i), crc32(all.first(i))), crc32(all)) << i;
  }
}

// FIPS 180-4 examples and the lengths around the padding's corners.
TEST(Sha256, KnownValues) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(bytes_of("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(1000000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(55, 'x')))), "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(56, 'x')))), "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(63, 'x')))), "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(64, 'x')))), "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(65, 'x')))), "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(119, 'x')))), "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(120, 'x')))), "13f05a0b594787f5ecd315edc96141bd3243203d1b7d4f0836f37308b276ba98");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(128, 'x')))), "24da1b81d0b16df6428eee73c69fcb2a93c76bc6df706f0c6670fe6bfe800464");
}

TEST(Hash64, IsTheFirstEightBytesLittleEndian) { EXPECT_EQ(hash64(bytes_of("abc")), 0xeacf018fbf1678bau); }

}  // namespace
}  // namespace kpd
