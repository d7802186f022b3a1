// K-means over clients that keep their images: each sends, compressed, how its images would move the centres; the server
// averages (Lloyd's iteration; the experiment of DRIVE, Vargaftik et al., NeurIPS 2021). Prints the mean squared distance to
// the nearest centre against the megabytes sent.
#include <algorithm>
#include <cmath>

#include "clients.h"

namespace {

constexpr size_t kCentres = 10;
constexpr int kRounds = 15;

struct Assignment {
  std::vector<std::vector<float>> moves;  // of each client: sum over its images of (image - nearest centre), over its images
  std::vector<double> counts;             // images of each centre, over all clients
  double distance = 0;                    // mean squared distance of an image to its centre
};

Assignment assign(const std::vector<float>& images, const std::vector<float>& centres) {
  const size_t n = images.size() / kPixels, each = n / kClients;
  Assignment a{std::vector(kClients, std::vector<float>(kCentres * kPixels)), std::vector<double>(kCentres), 0};
  for (size_t i = 0; i < each * kClients; ++i) {
    const float* x = images.data() + i * kPixels;
    size_t best = 0;
    float least = HUGE_VALF;
    for (size_t k = 0; k < kCentres; ++k) {
      float d = 0;
      for (size_t p = 0; p < kPixels; ++p) d += (x[p] - centres[k * kPixels + p]) * (x[p] - centres[k * kPixels + p]);
      if (d < least) least = d, best = k;
    }
    float* move = a.moves[i / each].data() + best * kPixels;
    for (size_t p = 0; p < kPixels; ++p) move[p] += (x[p] - centres[best * kPixels + p]) / static_cast<float>(each);
    a.counts[best] += 1;
    a.distance += static_cast<double>(least) / static_cast<double>(each * kClients);
  }
  return a;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<float> images = load_images(argc, argv);
  const double n = static_cast<double>(images.size() / kPixels / kClients * kClients);
  std::printf("%-24s %10s %18s\n", "codec", "MB sent", "squared distance");
  for (const char* codec : {"float32", "eden:bits=4", "eden:bits=1", "eden:bits=0.25", "hadamard-sq:bits=1", "qsgd:bits=2"}) {
    std::vector<float> centres(images.begin(), images.begin() + kCentres * kPixels);
    CompressedMean mean(codec, centres.size());
    for (int round = 0; round < kRounds; ++round) {
      const Assignment a = assign(images, centres);
      const std::vector<float> move = mean.mean(a.moves, 1);
      // The counts are ten numbers a client; they would travel beside the message.
      for (size_t i = 0; i < centres.size(); ++i) {
        const double share = a.counts[i / kPixels] / n;
        if (share > 0) centres[i] += static_cast<float>(static_cast<double>(move[i]) / share);
      }
    }
    std::printf("%-24s %10.3f %18.3f\n", codec, static_cast<double>(mean.bytes()) / 1e6, assign(images, centres).distance);
  }
  return 0;
}
