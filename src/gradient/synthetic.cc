// gradient: synthetic client vectors; see the header. Inverse-transform sampling from Philox words, so that number i costs
// one 32-bit word and can be made without its predecessors.
#include "kpd/gradient/synthetic.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "kpd/base/error.h"
#include "kpd/base/rng.h"
#include "kpd/base/spec.h"
#include "kpd/base/threads.h"

namespace kpd::gradient {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 16;           // elements a task makes
constexpr uint64_t kSharedClient = 0;                    // the stream of u; client c has stream c + 1
constexpr uint64_t kSeedDomain = 0x73796e7468657469ull;  // keeps data apart from other uses of the same seed
constexpr std::array<std::string_view, 6> kMarginalNames = {"normal", "lognormal", "exponential", "sparse", "halves", "blocks"};
constexpr size_t kMaxFactors = 4096;

// Fills z[0 .. n) with the standard normal numbers `first ...` of a stream; first is a multiple of 4.
void fill_normal(uint64_t seed, uint64_t trial, uint64_t stream, uint64_t first, std::span<float> z) {
  const uint64_t keyed = seed ^ kSeedDomain ^ ((trial >> 32) << 32);
  const PhiloxKey key = {static_cast<uint32_t>(keyed), static_cast<uint32_t>(keyed >> 32)};
  for (size_t i = 0; i < z.size(); i += 4) {
    const uint64_t index = (first + i) / 4;
    const PhiloxCounter words = philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                            static_cast<uint32_t>(trial), static_cast<uint32_t>(stream)},
                                           key);
    const size_t n = std::min<size_t>(4, z.size() - i);
    // The middle of one of 2^32 cells: |z| up to 6.3, never infinite.
    for (size_t j = 0; j < n; ++j) z[i + j] = static_cast<float>(normal_quantile((words[j] + 0.5) * 0x1p-32));
  }
}

void apply_marginal(Marginal marginal, std::span<float> z) {
  if (marginal == Marginal::kLogNormal) {
    for (float& v : z) v = std::exp(v);
  } else if (marginal == Marginal::kExponential) {
    for (float& v : z) v = static_cast<float>(-std::log(0.5 * std::erfc(v * 0.70710678118654752440)));
  }
}

// "R1,R2,..." as finite numbers; `text` is what an error shows.
std::vector<double> parse_factors(std::string_view list, std::string_view text) {
  std::vector<double> factors;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (true) {
    double factor = 0;
    const auto [next, error] = std::from_chars(at, end, factor);
    if (error != std::errc() || !std::isfinite(factor) || (next != end && *next != ',') || factors.size() == kMaxFactors) {
      fail(ErrorCode::kInvalidArgument, "\"", text,
           "\": expected finite numbers, as in halves:0.1 or blocks:1,0.1,0.01 (at most ", kMaxFactors, ")");
    }
    factors.push_back(factor);
    if (next == end) return factors;
    at = next + 1;
  }
}

// Multiplies part[j], element first + j of dim, by the factor of its part.
void scale_parts(std::span<const double> factors, uint64_t dim, uint64_t first, std::span<float> part) {
  for (size_t j = 0; j < part.size(); ++j) {
    const auto k = static_cast<size_t>(static_cast<unsigned __int128>(first + j) * factors.size() / dim);
    part[j] = static_cast<float>(part[j] * factors[k]);
  }
}

}  // namespace

double normal_quantile(double p) {
  constexpr double kLow = 0.02425;
  if (p < kLow || p > 1 - kLow) {
    const double q = std::sqrt(-2 * std::log(p < kLow ? p : 1 - p));
    const double n =
        ((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838e+00) * q - 2.549732539343734e+00) * q +
         4.374664141464968e+00) *
            q +
        2.938163982698783e+00;
    const double d =
        (((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996e+00) * q + 3.754408661907416e+00) * q + 1;
    return p < kLow ? n / d : -n / d;
  }
  const double q = p - 0.5;
  const double r = q * q;
  const double n =
      ((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r + 1.383577518672690e+02) * r -
       3.066479806614716e+01) *
          r +
      2.506628277459239e+00;
  const double d =
      ((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r + 6.680131188771972e+01) * r -
       1.328068155288572e+01) *
          r +
      1;
  return q * n / d;
}

SyntheticSpec SyntheticSpec::parse(std::string_view text) {
  SyntheticSpec spec;
  const std::string_view name = text.substr(0, text.find(':'));
  const auto found = std::find(kMarginalNames.begin(), kMarginalNames.end(), name);
  if (found == kMarginalNames.end()) {
    const std::string_view near = nearest_word(name, kMarginalNames);
    fail(ErrorCode::kInvalidArgument, "unknown distribution \"", text, "\"",
         near.empty() ? std::string() : str(", did you mean '", near, "'?"),
         " (known: lognormal, normal, exponential, sparse:K, halves:R, blocks:R1,R2,...)");
  }
  spec.marginal = static_cast<Marginal>(found - kMarginalNames.begin());
  const std::string_view rest = text.substr(name.size());
  if (spec.marginal == Marginal::kSparse) {
    const char* end = rest.data() + rest.size();
    const auto [ptr, error] = std::from_chars(rest.data() + (rest.empty() ? 0 : 1), end, spec.sparse_k);
    if (rest.size() < 2 || error != std::errc() || ptr != end || spec.sparse_k == 0) {
      fail(ErrorCode::kInvalidArgument, "\"", text, "\": expected sparse:K with an integer K of at least 1");
    }
  } else if (spec.marginal == Marginal::kHalves || spec.marginal == Marginal::kBlocks) {
    spec.factors = parse_factors(rest.substr(rest.empty() ? 0 : 1), text);
    if (spec.marginal == Marginal::kHalves) {
      if (spec.factors.size() != 1) fail(ErrorCode::kInvalidArgument, "\"", text, "\": expected one number, as in halves:0.1");
      spec.factors.insert(spec.factors.begin(), 1.0);
    }
  } else if (!rest.empty()) {
    fail(ErrorCode::kInvalidArgument, "\"", text, "\": ", name, " takes no parameter");
  }
  return spec;
}

SyntheticClients::SyntheticClients(const SyntheticSpec& spec, uint64_t dim) : spec_(spec), dim_(dim) {
  if (!(spec.correlation >= 0 && spec.correlation <= 1)) {
    fail(ErrorCode::kInvalidArgument, "correlation ", spec.correlation, " is outside 0..1");
  }
  start_trial(0);
}

void SyntheticClients::start_trial(uint64_t trial, int threads) {
  trial_ = trial;
  const bool mixes = spec_.correlation > 0 && spec_.correlation < 1 && spec_.marginal != Marginal::kSparse;
  if (!mixes) return;
  shared_.resize(dim_);
  const float scale = static_cast<float>(std::sqrt(spec_.correlation));
  parallel_for((dim_ + kChunk - 1) / kChunk, threads, [&](size_t task, int) {
    const uint64_t first = task * kChunk;
    const std::span<float> part = std::span(shared_).subspan(first, std::min(kChunk, dim_ - first));
    fill_normal(spec_.seed, trial_, kSharedClient, first, part);
    for (float& v : part) v *= scale;
  });
}

void SyntheticClients::client(uint64_t client, std::span<float> dst, int threads) const {
  if (dst.size() != dim_) fail(ErrorCode::kInvalidArgument, "dst has ", dst.size(), " elements, expected ", dim_);
  if (client >= 0xffffffffull) fail(ErrorCode::kInvalidArgument, "client ", client, " is beyond 2^32 - 2");
  if (spec_.marginal == Marginal::kSparse) {
    std::fill(dst.begin(), dst.end(), 0.0f);
    const uint64_t k = std::min(spec_.sparse_k, dim_);
    for (uint64_t i = 0; i < k; ++i) dst[i] = static_cast<float>(1 - 0.01 * static_cast<double>(i));
    return;
  }
  const uint64_t stream = spec_.correlation == 1 ? kSharedClient : client + 1;
  const float own_scale = static_cast<float>(std::sqrt(1 - spec_.correlation));
  parallel_for((dim_ + kChunk - 1) / kChunk, threads, [&](size_t task, int) {
    const uint64_t first = task * kChunk;
    const std::span<float> part = dst.subspan(first, std::min(kChunk, dim_ - first));
    fill_normal(spec_.seed, trial_, stream, first, part);
    if (!shared_.empty()) {
      for (size_t i = 0; i < part.size(); ++i) part[i] = shared_[first + i] + own_scale * part[i];
    }
    apply_marginal(spec_.marginal, part);
    if (!spec_.factors.empty()) scale_parts(spec_.factors, dim_, first, part);
  });
}

}  // namespace kpd::gradient
