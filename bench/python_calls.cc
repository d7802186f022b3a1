// bench: the C++ side of bench/python_codec.py: does one call a line of standard input and prints its seconds, by the
// clock and of the processor.
//
// Lines are "encode", "decode", "add" (a server's round of one message). Arguments: SPEC NUMBERS TENSORS.
#include <chrono>
#include <ctime>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "kpd/gradient/gradient.h"

namespace {

using namespace kpd::gradient;
using Clock = std::chrono::steady_clock;

struct Side {
  Side(const std::string& spec, uint64_t numbers, uint64_t tensors) : codec(Codec::parse(spec)) {
    for (uint64_t i = 0; i < tensors; ++i) {
      const uint64_t n = numbers / tensors + (i < numbers % tensors ? 1 : 0);
      manifest.push_back({"t" + std::to_string(i), kpd::DType::kFloat32, {n}});
      input.emplace_back(n);
      output.emplace_back(n, 1.0f);
      SyntheticSpec normal = SyntheticSpec::parse("normal");
      normal.seed = i;
      SyntheticClients(normal, n).client(0, input.back());
    }
    for (const auto& x : input) views.emplace_back(std::span<const float>(x));
    for (auto& y : output) spans.emplace_back(y);
    encoder.emplace(manifest, codec, RunSecret{});
    decoder.emplace(manifest, RunSecret{});
    server.emplace(manifest, RunSecret{});
    room.resize(encoder->max_bytes());
    bytes = encoder->encode_message(views, {}, room);
  }

  // By the clock and of the processor.
  std::pair<double, double> seconds(const std::string& what) {
    const std::span<const uint8_t> message = std::span(room).first(bytes);
    if (what == "add") server->begin_round({}, spans);
    const auto start = Clock::now();
    const std::clock_t cpu_start = std::clock();
    if (what == "encode") bytes = encoder->encode_message(views, {}, room);
    if (what == "decode") decoder->decode(message, {}, spans);
    if (what == "add" && !server->add(0, message).accepted()) std::abort();
    const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    if (what == "add") (void)server->finish_round();
    return {taken, cpu};
  }

  Codec codec;
  Manifest manifest;
  std::vector<std::vector<float>> input, output;
  std::vector<kpd::TensorView> views;
  std::vector<std::span<float>> spans;
  std::optional<Encoder> encoder;
  std::optional<Decoder> decoder;
  std::optional<Aggregator> server;
  std::vector<uint8_t> room;
  uint64_t bytes = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: python_calls SPEC NUMBERS TENSORS, then a line for each call\n");
    return 2;
  }
  Side side(argv[1], std::stoull(argv[2]), std::stoull(argv[3]));
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto [taken, cpu] = side.seconds(line);
    std::printf("%.9f %.9f\n", taken, cpu);
    std::fflush(stdout);
  }
  return 0;
}
