// The first principal direction of images that clients keep: each multiplies its own covariance with the server's vector and
// sends the product, compressed; the server averages and normalizes (the experiment of DRIVE, Vargaftik et al., NeurIPS 2021).
// Prints the distance to the exact direction against the megabytes sent.
#include <algorithm>
#include <cmath>

#include "clients.h"

namespace {

constexpr int kRounds = 30;
constexpr float kStep = 0.2f;  // how far the vector moves towards each round's product: averages the codecs' errors over rounds

void normalize(std::vector<float>& v) {
  double norm2 = 0;
  for (const float x : v) norm2 += static_cast<double>(x) * x;
  for (float& x : v) x = static_cast<float>(x / std::sqrt(norm2));
}

// Of each client: its covariance (images are centred already) times v.
std::vector<std::vector<float>> products(const std::vector<float>& images, const std::vector<float>& v) {
  const size_t each = images.size() / kPixels / kClients;
  std::vector<std::vector<float>> result(kClients, std::vector<float>(kPixels));
  for (size_t i = 0; i < each * kClients; ++i) {
    const float* x = images.data() + i * kPixels;
    float dot = 0;
    for (size_t p = 0; p < kPixels; ++p) dot += x[p] * v[p];
    std::vector<float>& y = result[i / each];
    for (size_t p = 0; p < kPixels; ++p) y[p] += dot * x[p] / static_cast<float>(each);
  }
  return result;
}

void centre(std::vector<float>& images) {
  std::vector<double> mean(kPixels);
  const double n = static_cast<double>(images.size() / kPixels);
  for (size_t i = 0; i < images.size(); ++i) mean[i % kPixels] += images[i] / n;
  for (size_t i = 0; i < images.size(); ++i) images[i] -= static_cast<float>(mean[i % kPixels]);
}

std::vector<float> iterate(const std::vector<float>& images, CompressedMean& mean, int rounds, float step) {
  std::vector<float> v(kPixels, 1.0f);
  normalize(v);
  for (int round = 0; round < rounds; ++round) {
    std::vector<float> y = mean.mean(products(images, v), 1);
    normalize(y);
    for (size_t p = 0; p < kPixels; ++p) v[p] += step * (y[p] - v[p]);
    normalize(v);
  }
  return v;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<float> images = load_images(argc, argv);
  centre(images);
  CompressedMean floats("float32", kPixels);
  const std::vector<float> exact = iterate(images, floats, 100, 1.0f);
  std::printf("%-24s %10s %12s\n", "codec", "MB sent", "distance");
  for (const char* codec :
       {"float32", "eden:bits=4", "eden:bits=2", "eden:bits=1", "eden:bits=0.25", "hadamard-sq:bits=1", "qsgd:bits=2"}) {
    CompressedMean mean(codec, kPixels);
    const std::vector<float> v = iterate(images, mean, kRounds, kStep);
    double dot = 0;
    for (size_t p = 0; p < kPixels; ++p) dot += static_cast<double>(v[p]) * exact[p];
    std::printf("%-24s %10.3f %12.4f\n", codec, static_cast<double>(mean.bytes()) / 1e6,
                std::sqrt(std::max(0.0, 2 - 2 * std::fabs(dot))));
  }
  return 0;
}
