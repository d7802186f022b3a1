// tests: in the steady state neither encoder nor decoder allocates: the first call of a size may, the same call again must not.
// This program counts every operator new.
#include <gtest/gtest.h>

#include <atomic>

#include "base/replaced_new.h"
#include "gradient/round_trip.h"
#include "kpd/base/error.h"
#include "kpd/gradient/decoder.h"

namespace {

std::atomic<uint64_t> g_allocations{0};

}  // namespace

void kpd::testing::before_allocation() { g_allocations.fetch_add(1, std::memory_order_relaxed); }

namespace kpd::gradient {
namespace {

using namespace testing;

// Allocations of eight calls after four calls that may allocate.
template <class Fn>
uint64_t steady_allocations(const Fn& fn) {
  for (uint64_t i = 0; i < 4; ++i) fn(i);
  const uint64_t before = g_allocations.load();
  for (uint64_t i = 4; i < 12; ++i) fn(i);
  return g_allocations.load() - before;
}

TEST(Allocation, TheCounterCounts) {
  EXPECT_GE(steady_allocations([](uint64_t) {
              std::vector<int> v(10, 1);
              ASSERT_EQ(v[3], 1);
            }),
            4u);
}

void check(const std::string& spec, int threads, DType dtype) {
  SCOPED_TRACE(str(spec, ", ", threads, " threads, ", dtype_name(dtype)));
  const Manifest manifest = {{"w", dtype, {30, 300}}, {"b", dtype, {20}}, {"v", dtype, {4500}}, {"none", dtype, {0}}};
  std::vector<std::vector<uint8_t>> raw;
  std::vector<TensorView> views;
  std::vector<std::vector<float>> out;
  for (size_t t = 0; t < manifest.size(); ++t) {
    const std::vector<float> x = normal_vector(manifest[t].count(), t);
    raw.emplace_back(x.size() * dtype_bytes(dtype) + 1);
    store_floats(x, dtype, raw.back().data());
    views.emplace_back(raw.back().data(), x.size(), dtype);
    out.emplace_back(x.size());
  }
  const std::vector<std::span<float>> dst(out.begin(), out.end());
  const RunSecret secret = RunSecret::from_seed(1);
  Encoder encoder(manifest, Codec::parse(spec), secret, {threads, NonFinite::kRefuse});
  Decoder decoder(manifest, secret, {threads, {}});
  std::vector<uint8_t> bytes(encoder.max_bytes());
  uint64_t used = 0;
  // With several threads it is open when a worker meets its first segment of a size and grows its scratch: a few vectors each,
  // once.
  const uint64_t most = threads == 1 ? 0 : 20;
  EncodeReport encode_report;
  DecodeReport decode_report;
  MessageIds ids{1, 0, 3, 4, 5};
  EXPECT_LE(steady_allocations([&](uint64_t round) {
              ids.round = round;
              used = encoder.encode_message(views, ids, bytes, &encode_report);
            }),
            most)
      << "encode_message";
  EXPECT_LE(steady_allocations([&](uint64_t) { decoder.decode(std::span(bytes).first(used), ids, dst, &decode_report); }), most)
      << "decode";
  EXPECT_LE(
      steady_allocations([&](uint64_t) { decoder.decode_add(std::span(bytes).first(used), ids, 0.5f, dst, &decode_report); }),
      most)
      << "decode_add";
  EXPECT_LE(steady_allocations([&](uint64_t) { (void)decoder.peek(std::span(bytes).first(used)); }), most) << "peek";
  EXPECT_LE(steady_allocations([&](uint64_t seed) { used = encoder.encode_file(views, seed, bytes, &encode_report); }), most)
      << "encode_file";
}

TEST(Allocation, NoneInTheSteadyState) {
  for (const MethodRow& method : methods()) check(std::string(method.name), 1, DType::kFloat32);
  for (const char* spec : {"eden:bits=0.3", "eden:bits=2.5,block=256", "eden:bits=6", "eden:bits=2,allocate=energy,block=256",
                           "eden:code=entropy,bits=0.3", "eden:code=entropy,bits=2,block=512", "eden:code=entropy,bits=7",
                           "eden:code=entropy,dither=shared,bits=2", "sq:bits=0.3", "qsgd:bits=8"}) {
    check(spec, 1, DType::kFloat32);
    check(spec, 1, DType::kBFloat16);
    check(spec, 2, DType::kFloat32);
  }
}

}  // namespace
}  // namespace kpd::gradient
