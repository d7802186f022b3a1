// quant: tables of the entropy-coded uniform quantizer. See the header; the rules below are normative, because the frequencies
// decide stream bytes:
//   r  = smallest r >= 0 with step * 2^r >= 0.11; half = 2^(r-1), or 0 if r = 0.
//   coarse symbol s covers the indices s*2^r - half .. s*2^r - half + 2^r - 1.
//   n_classes = 1 without dither; with dither 16 if step >= 0.5, 4 if 0.5 > step >= 0.11, else 1.
//   S  = smallest S >= 1 for which the mass of all other indices is below 2^-15, where escapes cost as much as more symbols
//   would. f_s = max(1, floor(4096 p_s + 1/2)); while the sum is above 4096, the symbol with the least p_s / (f_s - 1/2) among
//   f_s >= 2 loses one; while it is below, the symbol with the greatest p_s / (f_s + 1/2) gains one (the lowest symbol on
//   ties). Both are the step that costs the least.
#include "kpd/quant/gaussian_step.h"

#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "kpd/base/error.h"
#include "kpd/base/exact_math.h"

namespace kpd::quant {
namespace {

constexpr double kMinCoarseStep = 0.11;
constexpr double kOutsideMass = 1.0 / 32768;
constexpr int kTotal = 1 << kFrequencyBits;
constexpr double kSumEnd = 10;  // cells beyond have no mass that a double sum would notice

// The antiderivative of the distribution function, x Phi(x) + phi(x).
double cdf_integral(double x) {
  if (x > 0) return x + cdf_integral(-x);
  return normal_pdf(x) + x * normal_cdf(x);
}

// The geometry of one step.
struct Cells {
  double step;
  bool dither;
  int raw_bits = 0;
  int64_t half = 0;
  int n_classes = 1;

  Cells(uint32_t step_q20, bool with_dither) : step(step_q20 * (1.0 / (1 << 20))), dither(with_dither) {
    if (step_q20 < kMinStepQ20 || step_q20 > kMaxStepQ20) {
      fail(ErrorCode::kInvalidArgument, "a quantizer step lies between ", kMinStepQ20, " and ", kMaxStepQ20,
           " units of 2^-20, not ", step_q20);
    }
    while (step * (1 << raw_bits) < kMinCoarseStep) ++raw_bits;
    half = raw_bits == 0 ? 0 : int64_t{1} << (raw_bits - 1);
    if (dither) n_classes = step >= 0.5 ? 16 : step >= kMinCoarseStep ? 4 : 1;
  }

  int64_t first_index(int64_t symbol) const { return symbol * (int64_t{1} << raw_bits) - half; }
  double lower_edge(int64_t index) const { return (index - 0.5) * step; }

  // Mass of z + dither within (a, b) given dither class c.
  double mass(double a, double b, int c) const {
    if (!dither) return normal_interval(a, b);
    const double u0 = dither_edge(c), u1 = dither_edge(c + 1);
    const double integral = (cdf_integral(b - u0) - cdf_integral(b - u1)) - (cdf_integral(a - u0) - cdf_integral(a - u1));
    const double p = integral / (u1 - u0);
    return p > 0 ? p : 0;
  }
  // Mass below a and above b.
  double outside(double a, double b, int c) const {
    if (!dither) return normal_cdf(a) + normal_upper_tail(b);
    const double u0 = dither_edge(c), u1 = dither_edge(c + 1);
    const double integral = (cdf_integral(a - u0) - cdf_integral(a - u1)) + (cdf_integral(u1 - b) - cdf_integral(u0 - b));
    return integral / (u1 - u0);
  }
  double dither_edge(int c) const { return (static_cast<double>(c) / n_classes - 0.5) * step; }

  int64_t find_extent() const {
    for (int64_t s = 1;; ++s) {
      double sum = 0;
      for (int c = 0; c < n_classes; ++c) sum += outside(lower_edge(first_index(-s)), lower_edge(first_index(s + 1)), c);
      if (sum / n_classes < kOutsideMass) return s;
    }
  }
};

void quantize_frequencies(const std::vector<double>& p, std::span<uint16_t> f) {
  int sum = 0;
  for (size_t s = 0; s < p.size(); ++s) {
    const int rounded = static_cast<int>(kTotal * p[s] + 0.5);
    f[s] = static_cast<uint16_t>(rounded < 1 ? 1 : rounded);
    sum += f[s];
  }
  while (sum != kTotal) {
    const bool lower = sum > kTotal;
    size_t best = p.size();
    double best_cost = 0;
    for (size_t s = 0; s < p.size(); ++s) {
      if (lower && f[s] < 2) continue;
      const double cost = lower ? p[s] / (f[s] - 0.5) : -(p[s] / (f[s] + 0.5));
      if (best == p.size() || cost < best_cost) {
        best = s;
        best_cost = cost;
      }
    }
    f[best] = static_cast<uint16_t>(lower ? f[best] - 1 : f[best] + 1);
    sum += lower ? -1 : 1;
  }
}

struct Frequencies {
  int64_t extent = 0;  // S
  int n_symbols = 0;
  std::vector<uint16_t> values;
  double expected_bits = 0;
};

Frequencies make_frequencies(const Cells& cells) {
  Frequencies out;
  out.extent = cells.find_extent();
  const int64_t s_max = out.extent;
  out.n_symbols = static_cast<int>(2 * s_max + 2);
  out.values.resize(static_cast<size_t>(cells.n_classes) * out.n_symbols);
  std::vector<double> p(out.n_symbols);
  for (int c = 0; c < cells.n_classes; ++c) {
    for (int64_t s = -s_max; s <= s_max; ++s) {
      p[s + s_max] = cells.mass(cells.lower_edge(cells.first_index(s)), cells.lower_edge(cells.first_index(s + 1)), c);
    }
    const double escaped =
        cells.outside(cells.lower_edge(cells.first_index(-s_max)), cells.lower_edge(cells.first_index(s_max + 1)), c);
    p.back() = escaped;
    const std::span<uint16_t> f =
        std::span<uint16_t>(out.values).subspan(static_cast<size_t>(c) * out.n_symbols, out.n_symbols);
    quantize_frequencies(p, f);
    double bits = 0;
    for (size_t s = 0; s < p.size(); ++s) bits += p[s] * (kFrequencyBits - exact_log2(f[s]));
    bits += (1.0 - escaped) * cells.raw_bits + escaped * kEscapeBits;
    out.expected_bits += bits / cells.n_classes;
  }
  return out;
}

}  // namespace

GaussianStep::GaussianStep(uint32_t units, bool with_dither) : step_q20(units), dither(with_dither) {
  const Cells cells(step_q20, dither);
  step = cells.step;
  float_step = static_cast<float>(step);
  float_inverse = static_cast<float>(1.0 / step);
  raw_bits = cells.raw_bits;
  n_classes = cells.n_classes;
  Frequencies made = make_frequencies(cells);
  frequencies = std::move(made.values);
  expected_bits = made.expected_bits;
  n_symbols = made.n_symbols;
  escape_symbol = n_symbols - 1;
  index_bias = static_cast<int32_t>(-cells.first_index(-made.extent));
  n_indices = static_cast<uint32_t>((2 * made.extent + 1) << raw_bits);

  values.resize(n_indices);
  // i and -i at once. The table reaches from -index_bias to n_indices - 1 - index_bias.
  const int64_t lowest = -static_cast<int64_t>(index_bias), highest = lowest + n_indices - 1;
  const int64_t last = -lowest > highest ? -lowest : highest;
  for (int64_t i = 0; i <= last || (!dither && i * step < kSumEnd); ++i) {
    NormalCell cell{0, i * step};
    if (!dither) cell = normal_cell(cells.lower_edge(i), cells.lower_edge(i + 1));
    if (i == 0) cell.mean = 0;
    const float centroid = static_cast<float>(cell.mean);
    for (int side = 0; side < (i == 0 ? 1 : 2); ++side) {
      const int64_t index = side == 0 ? i : -i;
      const bool inside = index >= lowest && index <= highest;
      const float value = inside ? (index < 0 ? -centroid : centroid) : midpoint(index);
      if (inside) values[index - lowest] = value;
      const double magnitude = value < 0 ? -static_cast<double>(value) : value;
      expected_zq += cell.mass * cell.mean * magnitude;
      expected_q2 += cell.mass * (magnitude * magnitude);
    }
  }
  if (dither) {
    expected_zq = 1.0;
    expected_q2 = 1.0 + dither_vnmse();
  }
}

double GaussianStep::sphere_zq(uint32_t n) const {
  double sum = 0;
  for (int64_t i = 1;; ++i) {
    const double a = (i - 0.5) * step;
    if (!(a < kSumEnd && a * a < n)) break;
    sum += static_cast<double>(value_of(i)) * sphere_partial_mean(n, a, (i + 0.5) * step);
  }
  return 2.0 * sum;
}

HalfQuantizer GaussianStep::half() const {
  HalfQuantizer out{{0.0}, {0.0}};
  for (int64_t i = 1; (i - 0.5) * step < 2 * kSumEnd; ++i) {
    out.edges.push_back((i - 0.5) * step);
    out.values.push_back(static_cast<double>(value_of(i)));
  }
  return out;
}

std::shared_ptr<const GaussianStep> gaussian_step(uint32_t step_q20, bool dither) {
  // Oldest out first; 64 entries are more steps than one stream's allocation uses at a time.
  constexpr size_t kCapacity = 64;
  struct Cache {
    std::mutex mutex;
    uint64_t clock = 0;
    std::map<std::pair<uint32_t, bool>, std::pair<uint64_t, std::shared_ptr<const GaussianStep>>> entries;
  };
  static Cache cache;
  const std::pair<uint32_t, bool> key(step_q20, dither);
  {
    const std::lock_guard<std::mutex> lock(cache.mutex);
    const auto found = cache.entries.find(key);
    if (found != cache.entries.end()) return found->second.second;
  }
  auto made = std::make_shared<const GaussianStep>(step_q20, dither);
  const std::lock_guard<std::mutex> lock(cache.mutex);
  if (cache.entries.size() >= kCapacity) {
    auto oldest = cache.entries.begin();
    for (auto it = cache.entries.begin(); it != cache.entries.end(); ++it) {
      if (it->second.first < oldest->second.first) oldest = it;
    }
    cache.entries.erase(oldest);
  }
  cache.entries[key] = {++cache.clock, made};
  return made;
}

double gaussian_step_bits(uint32_t step_q20, bool dither) { return make_frequencies(Cells(step_q20, dither)).expected_bits; }

uint32_t step_for_bits(double bits, bool dither) {
  uint32_t above = kMinStepQ20, within = kMaxStepQ20;  // finer: more bits than allowed; coarser: at most as many
  if (!(gaussian_step_bits(within, dither) <= bits)) {
    fail(ErrorCode::kInvalidArgument, "no quantizer step spends as little as ", bits, " bits per coordinate",
         dither ? " with shared dither" : "");
  }
  if (gaussian_step_bits(above, dither) <= bits) return above;
  while (within - above > 1) {
    const uint32_t middle = above + (within - above) / 2;
    (gaussian_step_bits(middle, dither) <= bits ? within : above) = middle;
  }
  return within;
}

}  // namespace kpd::quant
