// bench: what a server pays for n clients: decode-and-add of every message (an inverse rotation each) against the dithered
// code's sum in the rotated domain (one inverse rotation for all), and the plain code beside both. One thread, medians of
// interleaved runs.
//
//   build/bench/bench_server_sum [CLIENTS] [LOG2_DIM]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kpd/base/clock.h"
#include "kpd/base/rng.h"
#include "kpd/gradient/aggregator.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/decoder.h"

using namespace kpd::gradient;

namespace {

double seconds_of(const auto& fn) {
  const auto start = kpd::Clock::now();
  fn();
  return kpd::seconds_since(start);
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

std::vector<std::vector<uint8_t>> messages_of(const Manifest& manifest, const char* spec, uint64_t clients,
                                              const std::vector<float>& x) {
  Encoder encoder(manifest, Codec::parse(spec), RunSecret::from_seed(1));
  std::vector<std::vector<uint8_t>> out;
  std::vector<uint8_t> room(encoder.max_bytes());
  const kpd::TensorView view{std::span<const float>(x)};
  for (uint64_t c = 0; c < clients; ++c) {
    const uint64_t n = encoder.encode_message({&view, 1}, {.run = 1, .round = 1, .client = c}, room);
    out.emplace_back(room.begin(), room.begin() + static_cast<ptrdiff_t>(n));
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t clients = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64;
  const uint64_t dim = uint64_t{1} << (argc > 2 ? std::atoi(argv[2]) : 20);
  const Manifest manifest = {{"x", kpd::DType::kFloat32, {dim}}};
  kpd::CounterRng rng(1);
  std::vector<float> x(dim), acc(dim), copy(dim);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  const std::span<float> dst(acc);
  std::printf("%llu clients, d = %llu, one thread; seconds for the server's whole round\n",
              static_cast<unsigned long long>(clients), static_cast<unsigned long long>(dim));
  for (const char* bits : {"1", "2", "4"}) {
    const std::string plain = std::string("eden:bits=") + bits,
                      dithered = std::string("eden:code=entropy,dither=shared,bits=") + bits;
    const auto plain_messages = messages_of(manifest, plain.c_str(), clients, x),
               dithered_messages = messages_of(manifest, dithered.c_str(), clients, x);
    Decoder decoder(manifest, RunSecret::from_seed(1));
    Aggregator server(manifest, RunSecret::from_seed(1));
    std::vector<double> t_plain, t_server, t_each, t_sum, t_copy;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto add_all = [&](const auto& messages) {
        for (uint64_t c = 0; c < clients; ++c)
          decoder.decode_add(messages[c], {.run = 1, .round = 1, .client = c}, 1.0f, {&dst, 1});
      };
      t_plain.push_back(seconds_of([&] { add_all(plain_messages); }));
      t_server.push_back(seconds_of([&] {
        server.begin_round({.run = 1, .round = 1}, {&dst, 1});
        for (uint64_t c = 0; c < clients; ++c) server.add(c, plain_messages[c]);
        server.finish_round();
      }));
      t_each.push_back(seconds_of([&] { add_all(dithered_messages); }));
      t_sum.push_back(seconds_of([&] {
        for (uint64_t c = 0; c < clients; ++c)
          decoder.decode_rotated_add(dithered_messages[c], {.run = 1, .round = 1, .client = c}, 1.0f, {&dst, 1});
        decoder.finish_rotated({&dst, 1});
      }));
      t_copy.push_back(seconds_of([&] {
        for (uint64_t c = 0; c < clients; ++c) std::memcpy(copy.data(), x.data(), 4 * dim);
      }));
    }
    std::printf(
        "%s bit: %s, each decoded %.3f, by an aggregator that checks and judges each first %.3f; dithered, each decoded %.3f; "
        "dithered, summed before one inverse %.3f (%.2f x faster "
        "than each); memcpy %.3f\n",
        bits, plain.c_str(), median(t_plain), median(t_server), median(t_each), median(t_sum), median(t_each) / median(t_sum),
        median(t_copy));
  }
  return 0;
}
