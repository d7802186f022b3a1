// bench: whether the errors of many clients average, whatever the input: what a rotation that is not uniform would spoil.
//
//   bench_rotation_bias [CLIENTS]                   bias^2 / |x|^2 of EDEN after 1, 2 and 3 rounds on sparse inputs (default
//                                                   4000 clients; docs/methods/eden.md, "Why two rounds")
//   bench_rotation_bias ratio [N1,N2,... [SPEC...]] |sum of errors|^2 / sum of |error|^2 of 400 clients and vnmse / limit, by
//                                                   length and by where the energy lies (tests/gradient/averaging.h)
//   bench_rotation_bias sparse                      the ratio of 1,000 clients on (1, .99, 0, ...), by length and rounds
//   bench_rotation_bias tail [BLOCKS]               the largest one-bit error n |y|^2 / |y|_1^2 - 1 of so many blocks of each
//                                                   kind, in units of its limit pi/2 - 1 (default 20000)
//
// Markdown tables; every figure follows from fixed seeds. Bias: with m the mean of N decoded vectors, |m - x|^2 = bias^2 +
// variance / N on average; the second term is estimated from the spread and subtracted. Figures within three standard
// deviations of that subtraction's noise, about v / N sqrt(2 / d), are shown as "<".
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "../tests/gradient/averaging.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/decoder.h"
#include "kpd/transform/signs.h"

namespace {

using namespace kpd::gradient;
using kpd::DType;
using kpd::TensorView;

struct Input {
  const char* name;
  std::vector<float> head;  // the rest is zero
};

std::vector<Input> inputs() {
  std::vector<Input> all = {
      {"(1, .99)", {1, .99f}}, {"(1, .5)", {1, .5f}}, {"4-sparse", {}}, {"16-sparse", {}}, {"geometric 2^-i", {}}};
  for (int i = 0; i < 4; ++i) all[2].head.push_back(1 - .01f * static_cast<float>(i));
  for (int i = 0; i < 16; ++i) all[3].head.push_back(1 - .01f * static_cast<float>(i));
  for (int i = 0; i < 60; ++i) all[4].head.push_back(std::ldexp(1.0f, -i));
  return all;
}

constexpr int kBatches = 20;

struct Bias {
  double bias2 = 0, noise = 0;  // noise: one standard error
};

// Mean and standard error of <errors[i], errors[j]> over i < j.
Bias mean_product(const std::vector<std::vector<double>>& errors, double norm2) {
  double sum = 0, squares = 0;
  int n = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    for (size_t j = i + 1; j < errors.size(); ++j, ++n) {
      double product = 0;
      for (size_t k = 0; k < errors[i].size(); ++k) product += errors[i][k] * errors[j][k];
      sum += product / norm2;
      squares += product / norm2 * (product / norm2);
    }
  }
  const double mean = sum / n;
  return {mean, std::sqrt(std::max(0.0, squares / n - mean * mean) / n)};  // 0 where every client makes the same error
}

Bias measure(const Input& input, uint32_t dim, const std::string& spec, int clients) {
  std::vector<float> x(dim), decoded(dim);
  for (size_t i = 0; i < input.head.size(); ++i) x[i] = input.head[i];
  double norm2 = 0;
  for (const float v : x) norm2 += static_cast<double>(v) * v;

  const Manifest manifest = {{"x", DType::kFloat32, {dim}}};
  const RunSecret secret = RunSecret::from_seed(2026);
  Encoder encoder(manifest, Codec::parse(spec), secret);
  Decoder decoder(manifest, secret);
  std::vector<uint8_t> bytes(encoder.max_bytes());
  const TensorView view{std::span<const float>(x)};
  const std::span<float> dst(decoded);
  std::vector<std::vector<double>> errors(kBatches, std::vector<double>(dim));
  const int batch_clients = clients / kBatches;
  MessageIds ids;
  for (std::vector<double>& mean : errors) {
    for (int c = 0; c < batch_clients; ++c, ++ids.client) {
      const uint64_t n = encoder.encode_message({&view, 1}, ids, bytes);
      decoder.decode(std::span(bytes).first(n), ids, {&dst, 1});
      for (uint32_t i = 0; i < dim; ++i) mean[i] += (static_cast<double>(decoded[i]) - x[i]) / batch_clients;
    }
  }
  return mean_product(errors, norm2);
}

void print_cell(const Bias& b) {
  if (b.bias2 > 3 * b.noise) {
    std::printf(" %.2g |", b.bias2);
  } else {
    std::printf(" < %.1g |", 3 * b.noise);
  }
  std::fflush(stdout);
}

std::vector<size_t> parse_lengths(const char* text) {
  std::vector<size_t> lengths;
  for (const char* at = text; *at != 0;) {
    char* end = nullptr;
    lengths.push_back(std::strtoul(at, &end, 10));
    if (end == at || lengths.back() < 64) return {};
    at = *end == ',' ? end + 1 : end;
  }
  return lengths;
}

int print_ratios(int argc, char** argv) {
  const std::vector<size_t> lengths = parse_lengths(argc > 2 ? argv[2] : "65,127,200,1000,1023,1536,4097,6144,7936,8191");
  if (lengths.empty()) {
    std::fprintf(stderr, "%s: expected lengths of 64 or more, separated by commas\n", argv[2]);
    return 2;
  }
  std::vector<std::string> specs(argv + std::min(argc, 3), argv + argc);
  if (specs.empty()) specs = {"eden:bits=1", "eden:bits=4", "eden:code=entropy,bits=2", "drive", "hadamard-sq:bits=1"};
  for (const std::string& spec : specs) {
    std::printf("%s, 400 clients: ratio (vnmse / limit)\n\n| n |", spec.c_str());
    for (const auto& [shape, name] : testing::kShapes) std::printf(" %s |", name);
    std::printf("\n|---|");
    for (size_t i = 0; i < std::size(testing::kShapes); ++i) std::printf("---|");
    const double limit = Codec::parse(spec).limit_vnmse();
    for (const size_t n : lengths) {
      std::printf("\n| %zu |", n);
      for (const auto& [shape, name] : testing::kShapes) {
        const testing::Averaging a = testing::measure_averaging(spec, shape, n);
        std::printf(" %.2f (%.3f) |", a.ratio, a.vnmse / limit);
        std::fflush(stdout);
      }
    }
    std::printf("\n\n");
  }
  return 0;
}

int print_sparse() {
  std::printf(
      "(1, .99, 0, ...), 1000 clients: ratio at 1 / 4 bits\n\n| n | 2 rounds | 3 | 4 | 5 | default "
      "|\n|---|---|---|---|---|---|\n");
  for (const size_t n : {64, 65, 96, 127, 128, 200, 256, 511, 512, 1000, 1024, 2048, 4096, 8191}) {
    std::printf("| %zu |", n);
    for (const char* rounds : {",rounds=2", ",rounds=3", ",rounds=4", ",rounds=5", ""}) {
      for (const char* bits : {"1", "4"}) {
        const std::string spec = std::string("eden:bits=") + bits + rounds;
        const testing::Averaging a = testing::measure_averaging(spec, testing::Shape::kSparse, n, 1000, 0);
        std::printf(*bits == '1' ? " %.2f /" : " %.2f |", a.ratio);
        std::fflush(stdout);
      }
    }
    std::printf("\n");
  }
  return 0;
}

// Rounds as kpd takes them for a unit of n: by size, and three for a block whose largest element has 1/16 of its energy.
int rounds_of(const std::vector<float>& x) {
  const size_t n = x.size();
  if (n <= 4096) return n < 128 ? 5 : n < 512 ? 4 : 3;
  double most = 0, norm2 = 0;
  for (const float v : x) {
    most = std::max(most, std::fabs(static_cast<double>(v)));
    norm2 += static_cast<double>(v) * static_cast<double>(v);
  }
  return 16 * most * most >= norm2 ? 3 : 2;
}

int print_tail(int blocks) {
  std::printf("largest one-bit error of %d blocks / (pi/2 - 1)\n\n| n |", blocks);
  for (const auto& [shape, name] : testing::kShapes) std::printf(" %s |", name);
  std::printf("\n|---|");
  for (size_t i = 0; i < std::size(testing::kShapes); ++i) std::printf("---|");
  for (const size_t n : {64, 65, 127, 128, 200, 511, 512, 1000, 1024, 8191}) {
    std::printf("\n| %zu |", n);
    for (const auto& [shape, name] : testing::kShapes) {
      double most = 0;
      std::vector<float> x;
      for (int b = 0; b < blocks; ++b) {
        if (b % 8 == 0) x = testing::shaped_vector(shape, n, static_cast<uint64_t>(b));  // making it costs more than rotating
        std::vector<float> y = x;
        const kpd::transform::Rotation rotation(n, rounds_of(x));
        std::vector<uint32_t> signs(rotation.n_sign_words());
        kpd::transform::fill_signs(rotation, {2026, static_cast<uint32_t>(b), 0}, signs);
        rotation.forward(y.data(), 1, n, signs);
        double norm1 = 0, norm2 = 0;
        for (const float v : y) {
          norm1 += std::fabs(static_cast<double>(v));
          norm2 += static_cast<double>(v) * static_cast<double>(v);
        }
        most = std::max(most, (static_cast<double>(n) * norm2 / (norm1 * norm1) - 1) / (std::numbers::pi / 2 - 1));
      }
      std::printf(" %.2f |", most);
      std::fflush(stdout);
    }
  }
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "ratio") == 0) return print_ratios(argc, argv);
  if (argc > 1 && std::strcmp(argv[1], "sparse") == 0) return print_sparse();
  if (argc > 1 && std::strcmp(argv[1], "tail") == 0) return print_tail(argc > 2 ? std::max(1, std::atoi(argv[2])) : 20000);
  const int clients = argc > 1 ? std::atoi(argv[1]) : 4000;
  if (clients < kBatches) {
    std::fprintf(stderr,
                 "usage: bench_rotation_bias [CLIENTS, at least %d] | ratio [LENGTHS [SPEC...]] | sparse | tail [BLOCKS]\n",
                 kBatches);
    return 2;
  }
  std::printf("code=fixed, scale=unbiased, %d clients\n\n", clients);
  std::printf("| input | block | 1 bit: 1 round | 2 | 3 | 2 bits: 1 round | 2 | 3 | 4 bits: 1 round | 2 | 3 |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Input& input : inputs()) {
    for (const uint32_t block : {1024u, 4096u}) {
      std::printf("| %s | %u |", input.name, block);
      for (const int bits : {1, 2, 4}) {
        for (const int rounds : {1, 2, 3}) {
          const std::string spec =
              "eden:bits=" + std::to_string(bits) + ",rounds=" + std::to_string(rounds) + ",block=" + std::to_string(block);
          print_cell(measure(input, block, spec, clients));
        }
      }
      std::printf("\n");
    }
  }
  std::printf(
      "\ncode=entropy, dither=shared, one round, one rotation for all %d clients\n\n| input | block | 1 bit | 2 bits | 4 bits "
      "|\n|---|---|---|---|---|\n",
      clients);
  for (const Input& input : inputs()) {
    std::printf("| %s | 1024 |", input.name);
    for (const int bits : {1, 2, 4}) {
      print_cell(
          measure(input, 1024, "eden:code=entropy,dither=shared,rounds=1,block=1024,bits=" + std::to_string(bits), clients));
    }
    std::printf("\n");
  }
  return 0;
}
