// llm: the tokens that top-k, top-p and min-p leave (candidates.h).
#include "llm/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/sample.h"

namespace kpd::llm {
namespace {

constexpr size_t kBuckets = 512;
constexpr size_t kParts = 4;  // of a histogram, by turns: the next value need not wait until this one's bucket is written
constexpr size_t kFew = 64;   // so many are sorted

// Eight sums side by side: one would wait for itself at every addition.
double sum_of(std::span<const float> weights) {
  constexpr size_t kSums = 8;
  std::array<double, kSums> sums{};
  size_t i = 0;
  for (; i + kSums <= weights.size(); i += kSums) {
    for (size_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(weights[i + k]);
  }
  for (; i < weights.size(); ++i) sums[0] += static_cast<double>(weights[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

void Candidates::fit(size_t n) {
  size_ = 0;
  if (n <= capacity_) return;
  // Written before it is read: of memory that no token needs nothing but addresses is taken.
  values_ = std::make_unique_for_overwrite<float[]>(n + kernels::kSampleLanes);
  ids_ = std::make_unique_for_overwrite<uint32_t[]>(n + kernels::kSampleLanes);
  weights_ = std::make_unique_for_overwrite<float[]>(n);
  active_ = std::make_unique_for_overwrite<uint32_t[]>(n);
  buckets_ = std::make_unique_for_overwrite<uint16_t[]>(n);
  sums_ = std::make_unique_for_overwrite<double[]>(kernels::sample_blocks(n));
  capacity_ = n;
}

void Candidates::gather(std::span<const float> logits, float least) {
  size_ = kernels::gather_from(logits.data(), logits.size(), least, values_.get(), ids_.get());
}

void Candidates::weigh(float shift, float scale) {
  kernels::exp2_sums(values_.get(), size_, shift, scale, sums_.get(), weights_.get());
}

template <class Good>
void Candidates::drop_but(const Good& good) {
  float* const weights = weights_.get();
  for (uint32_t i = 0; i < static_cast<uint32_t>(size_); ++i) weights[i] = good(i) ? weights[i] : 0.0f;
}

// The smallest and the largest active value, eight of each side by side for the same reason.
std::pair<float, float> Candidates::range(size_t n_active) const {
  constexpr size_t kSides = 8;
  std::array<float, kSides> low, high;
  low.fill(values_[active_[0]]);
  high.fill(values_[active_[0]]);
  size_t i = 0;
  const auto take = [&](size_t side, float value) {
    low[side] = std::min(low[side], value);
    high[side] = std::max(high[side], value);
  };
  for (; i + kSides <= n_active; i += kSides) {
    for (size_t side = 0; side < kSides; ++side) take(side, values_[active_[i + side]]);
  }
  for (; i < n_active; ++i) take(0, values_[active_[i]]);
  return {*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
}

// Of the active candidates those remain that fall into the bucket where the prefix ends; `before` grows by the measures of
// those above it. Returns how many remain: fewer, or as many if all have one value.
template <class Measure>
size_t Candidates::narrow(size_t n_active, double limit, double& before, const Measure& measure) {
  const auto [low, high] = range(n_active);
  if (low == high) return n_active;
  const auto top = static_cast<double>(high), scale = static_cast<double>(kBuckets) / (top - static_cast<double>(low));
  for (size_t i = 0; i < n_active; ++i) {
    const auto bucket = static_cast<int32_t>((top - static_cast<double>(values_[active_[i]])) * scale);
    buckets_[i] = static_cast<uint16_t>(std::min(bucket, static_cast<int32_t>(kBuckets - 1)));
  }
  std::array<std::array<double, kBuckets>, kParts> parts{};
  for (size_t i = 0; i < n_active; ++i) parts[i % kParts][buckets_[i]] += measure(active_[i]);
  size_t end = 0;
  double above = before;
  for (size_t b = 0; b < kBuckets; ++b) {
    const double sum = (parts[0][b] + parts[1][b]) + (parts[2][b] + parts[3][b]);
    if (!(sum > 0)) continue;
    end = b;
    before = above;
    above += sum;
    if (above >= limit) break;
  }
  size_t n = 0;
  for (size_t i = 0; i < n_active; ++i) {
    active_[n] = active_[i];
    n += buckets_[i] == end ? 1 : 0;
  }
  return n;
}

template <class Measure>
uint32_t Candidates::last_of_prefix(double limit, const Measure& measure) {
  size_t n = size_;
  std::iota(active_.get(), active_.get() + n, 0u);
  double before = 0;
  for (size_t were = 0; n > kFew && n != were;) {
    were = n;
    n = narrow(n, limit, before, measure);
  }
  if (n > kFew) {  // all of one value, in the order of their ids
    const double needed = std::ceil((limit - before) / measure(active_[0]));
    return active_[static_cast<size_t>(std::clamp(needed, 1.0, static_cast<double>(n))) - 1];
  }
  std::sort(active_.get(), active_.get() + n,
            [&](uint32_t a, uint32_t b) { return values_[a] != values_[b] ? values_[a] > values_[b] : a < b; });
  for (size_t i = 0; i < n; ++i) {
    before += measure(active_[i]);
    if (before >= limit) return active_[i];
  }
  return active_[n - 1];
}

template <class Measure>
void Candidates::keep_prefix(double limit, const Measure& measure) {
  const uint32_t last = last_of_prefix(limit, measure);
  const float* const values = values_.get();
  const float value = values[last];
  drop_but([=](uint32_t i) { return (values[i] > value) | ((values[i] == value) & (i <= last)); });
}

void Candidates::keep_count(size_t n) {
  if (n < size_) keep_prefix(static_cast<double>(n), [](uint32_t) { return 1.0; });
}

void Candidates::keep_mass(double mass) {
  if (size_ > 1) keep_prefix(mass, [&](uint32_t c) { return static_cast<double>(weights_[c]); });
}

void Candidates::keep_weights(float least) {
  const float* const weights = weights_.get();
  drop_but([=](uint32_t i) { return weights[i] >= least; });
}

std::vector<text::TokenId> Candidates::kept() const {
  std::vector<text::TokenId> ids;
  for (size_t i = 0; i < size_; ++i) {
    if (weights_[i] > 0) ids.push_back(static_cast<text::TokenId>(ids_[i]));
  }
  return ids;
}

double Candidates::total() {
  double sum = 0;
  for (size_t block = 0; block < kernels::sample_blocks(size_); ++block) {
    const size_t first = block * kernels::kSampleBlock;
    sums_[block] = sum_of({weights_.get() + first, std::min(kernels::kSampleBlock, size_ - first)});
    sum += sums_[block];
  }
  return sum;
}

text::TokenId Candidates::draw(double u) {
  const double at = u * total();
  const Place block = place_at(std::span<const double>(sums_.get(), kernels::sample_blocks(size_)), at);
  const size_t first = block.index * kernels::kSampleBlock;
  const std::span<const float> weights(weights_.get() + first, std::min(kernels::kSampleBlock, size_ - first));
  return static_cast<text::TokenId>(ids_[first + place_at(weights, block.at).index]);
}

}  // namespace kpd::llm
