// examples: Fashion-MNIST spread over clients, and one compressed mean of their vectors. Public headers only.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/gradient/aggregator.h"
#include "kpd/io/idx.h"

inline constexpr int kClients = 10;
inline constexpr size_t kPixels = 784;

// Images of 784 numbers in [0, 1], client c's from c * size / kClients on: PROGRAM [FOLDER [IMAGES]], by default 6000. Ends the
// program with 77 if the data is not there.
inline std::vector<float> load_images(int argc, char** argv) {
  const size_t most = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 6000;
  const std::string folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
  try {
    const kpd::io::IdxArray images = kpd::io::load_idx(folder + "/train-images-idx3-ubyte.gz");
    std::vector<float> x(std::min(most * kPixels, images.data.size()));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(images.data[i]) / 255.0f;
    return x;
  } catch (const kpd::Error& e) {
    std::printf("skipped: %s (Debian: dataset-fashion-mnist)\n", e.what());
    std::exit(77);
  }
}

// A round: every client's vector through the codec, their mean out; counts the bytes.
class CompressedMean {
 public:
  CompressedMean(const char* codec, size_t dim)
      : manifest_{{"x", kpd::DType::kFloat32, {dim}}},
        encoder_(manifest_, kpd::gradient::Codec::parse(codec), secret_),
        server_(manifest_, secret_),
        message_(encoder_.max_bytes()) {}

  // vectors[c] is client c's; the result is the mean with these weights.
  std::vector<float> mean(const std::vector<std::vector<float>>& vectors, uint64_t weight) {
    std::vector<float> sum(vectors[0].size());
    kpd::gradient::MessageIds ids{.run = 1, .round = ++round_, .client = 0, .base_model_hash = 0, .weight = weight};
    const std::span<float> whole(sum);
    server_.begin_round(ids, {&whole, 1});
    for (ids.client = 0; ids.client < vectors.size(); ++ids.client) {
      const kpd::TensorView view{std::span<const float>(vectors[ids.client])};
      const uint64_t n = encoder_.encode_message({&view, 1}, ids, message_);
      server_.add(ids.client, std::span(message_).first(n), weight);
      bytes_ += n;
    }
    server_.finish_round();
    return sum;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  kpd::gradient::Manifest manifest_;
  kpd::gradient::RunSecret secret_ = kpd::gradient::RunSecret::from_seed(7);
  kpd::gradient::Encoder encoder_;
  kpd::gradient::Aggregator server_;
  std::vector<uint8_t> message_;
  uint64_t round_ = 0, bytes_ = 0;
};
