// tests and bench: do the errors of many clients average? One statistic, and the vectors on which a rotation could fail.
//
// ratio = |sum_c w_c (x^_c - x_c)|^2 / sum_c w_c^2 |x^_c - x_c|^2. Independent errors of mean zero give 1 whatever norms and
// weights are, errors that all clients share give up to the number of clients. One trial of n numbers has a standard error of
// about sqrt(2 / n), so `trials_for` takes as many as make it 1 %.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kpd/base/rng.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient::testing {

class AverageRatio {
 public:
  explicit AverageRatio(size_t n) : sum_(n) {}
  void add(std::span<const float> x, std::span<const float> decoded, double weight = 1) {
    double squares = 0;
    for (size_t i = 0; i < sum_.size(); ++i) {
      const double error = static_cast<double>(decoded[i]) - static_cast<double>(x[i]);
      sum_[i] += weight * error;
      squares += error * error;
    }
    squares_ += weight * weight * squares;
  }
  // NaN where every client was exact.
  double ratio() const {
    double shared = 0;
    for (const double v : sum_) shared += v * v;
    return squares_ > 0 ? shared / squares_ : std::numeric_limits<double>::quiet_NaN();
  }
  double error2() const { return squares_; }

 private:
  std::vector<double> sum_;
  double squares_ = 0;
};

inline int trials_for(size_t n) { return static_cast<int>((20000 + n - 1) / n); }

// Where the energy of a vector lies. m is the largest power of two below n.
enum class Shape {
  kEven,
  kHalves,        // the second half times .1
  kFirstQuarter,  // the rest times .1
  kLastThird,     // the rest times .1
  kLastFew,       // nothing but the last n - m (the last quarter where n is a power of two)
  kGeometric,     // x_i times 2^(-16 i / n)
  kAlternating,   // every second one times .1
  kOneRow,        // 1/8 of the vector, at most 128 numbers; else zeros
  kHeavyTailed,   // Student's t with two degrees of freedom
  kSparse,        // (1, .99, 0, ...)
  kSparseEnds,    // .99 first, 1 last
};
inline constexpr std::pair<Shape, const char*> kShapes[] = {{Shape::kEven, "even"},
                                                            {Shape::kHalves, "halves"},
                                                            {Shape::kFirstQuarter, "first quarter"},
                                                            {Shape::kLastThird, "last third"},
                                                            {Shape::kLastFew, "last n - m"},
                                                            {Shape::kGeometric, "geometric"},
                                                            {Shape::kAlternating, "alternating"},
                                                            {Shape::kOneRow, "one row"},
                                                            {Shape::kHeavyTailed, "heavy-tailed"},
                                                            {Shape::kSparse, "sparse"},
                                                            {Shape::kSparseEnds, "sparse ends"}};

inline std::vector<float> shaped_vector(Shape shape, size_t n, uint64_t seed) {
  CounterRng rng(seed, 78);
  std::vector<double> x(n);
  for (double& v : x) v = rng.next_normal();
  size_t m = 1;
  while (2 * m <= n) m *= 2;
  const auto scale = [&](size_t first, size_t last, double by) {
    for (size_t i = first; i < last; ++i) x[i] *= by;
  };
  const size_t row = n / 8 < 128 ? n / 8 : 128;
  switch (shape) {
    case Shape::kEven:
      break;
    case Shape::kHalves:
      scale((n + 1) / 2, n, .1);
      break;
    case Shape::kFirstQuarter:
      scale(n / 4, n, .1);
      break;
    case Shape::kLastThird:
      scale(0, n - n / 3, .1);
      break;
    case Shape::kLastFew:
      scale(0, m < n ? m : n - n / 4, 0);
      break;
    case Shape::kGeometric:
      for (size_t i = 0; i < n; ++i) x[i] *= std::exp2(-16.0 * static_cast<double>(i) / static_cast<double>(n));
      break;
    case Shape::kAlternating:
      for (size_t i = 0; i < n; i += 2) x[i] *= .1;
      break;
    case Shape::kOneRow:
      scale(0, 3 * row, 0);
      scale(4 * row, n, 0);
      break;
    case Shape::kHeavyTailed:
      for (double& v : x) {
        const double a = rng.next_normal(), b = rng.next_normal();
        v /= std::sqrt((a * a + b * b) / 2);
      }
      break;
    case Shape::kSparse:
    case Shape::kSparseEnds:
      scale(0, n, 0);
      x[0] = shape == Shape::kSparse ? 1 : .99;
      x[shape == Shape::kSparse ? 1 : n - 1] = shape == Shape::kSparse ? .99 : 1;
      break;
  }
  return {x.begin(), x.end()};
}

struct Averaging {
  double ratio = 0, vnmse = 0;  // means over the trials
};

// `clients` equal clients with keys of their own, in every trial another vector of the shape.
inline Averaging measure_averaging(const std::string& spec, Shape shape, size_t n, int clients = 400, int trials = 0) {
  if (trials == 0) trials = trials_for(n);
  const Manifest manifest = {{"x", DType::kFloat32, {n}}};
  const RunSecret secret = RunSecret::from_seed(2026);
  Encoder encoder(manifest, Codec::parse(spec), secret);
  Decoder decoder(manifest, secret);
  std::vector<uint8_t> bytes(encoder.max_bytes());
  std::vector<float> decoded(n);
  const std::span<float> dst(decoded);
  Averaging result;
  MessageIds ids;
  for (int t = 0; t < trials; ++t, ++ids.round) {
    const std::vector<float> x = shaped_vector(shape, n, static_cast<uint64_t>(t) * 1000003 + n);
    const TensorView view{std::span<const float>(x)};
    double norm2 = 0;
    for (const float v : x) norm2 += static_cast<double>(v) * static_cast<double>(v);
    AverageRatio average(n);
    for (int c = 0; c < clients; ++c) {
      ids.client = static_cast<uint64_t>(c);
      const uint64_t size = encoder.encode_message({&view, 1}, ids, bytes);
      decoder.decode(std::span(bytes).first(size), ids, {&dst, 1});
      average.add(x, decoded);
    }
    result.ratio += average.ratio() / trials;
    result.vnmse += average.error2() / norm2 / clients / trials;
  }
  return result;
}

}  // namespace kpd::gradient::testing
