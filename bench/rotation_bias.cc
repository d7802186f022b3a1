// bench: how much of a vector's estimate stays wrong when many equal clients are averaged: bias^2 / |x|^2 of EDEN after 1, 2
// and 3 rounds of the randomized Hadamard, on sparse inputs (docs/methods/eden.md, "Why two rounds").
//
//   bench_rotation_bias [CLIENTS]     default 4000; prints two Markdown tables. Every figure follows from fixed seeds.
//
// With m the mean of N decoded vectors, |m - x|^2 = bias^2 + variance / N on average; the second term is estimated from the
// spread and subtracted. Figures within three standard deviations of that subtraction's noise, about v / N sqrt(2 / d), are
// shown as "<".
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "kpd/gradient/message.h"

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

}  // namespace

int main(int argc, char** argv) {
  const int clients = argc > 1 ? std::atoi(argv[1]) : 4000;
  if (clients < kBatches) {
    std::fprintf(stderr, "usage: bench_rotation_bias [CLIENTS, at least %d]\n", kBatches);
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
