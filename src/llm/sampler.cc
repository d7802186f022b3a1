// llm: the next token from logits. A draw without cuts takes one pass for the largest logit and one for the mass of each block
// of 1024 tokens; only the block where it falls is looked at again. Cuts gather the few tokens that can be kept (candidates.h).
#include "kpd/llm/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>

#include "kernels/sample.h"
#include "kpd/base/error.h"
#include "kpd/base/rng.h"
#include "llm/candidates.h"

namespace kpd::llm {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();

// Why there is no largest logit.
[[noreturn]] void refuse(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= kMost) continue;
    fail(ErrorCode::kCorruptData, "the model gave token ", i, " the logit ", logits[i] > kMost ? "inf" : "NaN",
         ", expected a finite number (is it damaged?)");
  }
  fail(ErrorCode::kCorruptData, "the model gave all ", logits.size(), " tokens the logit -inf, expected a finite one");
}

// Uniform in (0, 1), 53 bits, a function of seed and number.
double uniform(uint64_t seed, uint64_t number) {
  const std::array<uint32_t, 4> words = philox4x32({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0},
                                                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return std::min((static_cast<double>(bits) + 0.5) * 0x1p-53, 1 - 0x1p-53);
}

// Of a weight's exponent: w = 2^((logit - largest) scale). Temperatures that are all but 0 give no infinities.
float scale_of(double temperature) { return static_cast<float>(std::min(std::numbers::log2e / temperature, 1e30)); }

// fn(i) for every bit i that is set.
template <class Fn>
void for_each_bit(std::span<const uint64_t> words, const Fn& fn) {
  for (size_t word = 0; word < words.size(); ++word) {
    for (uint64_t bits = words[word]; bits != 0; bits &= bits - 1) fn(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
  }
}

void set_bit(std::vector<uint64_t>& words, size_t i) {
  if (i / 64 >= words.size()) words.resize(i / 64 + 1);
  words[i / 64] |= uint64_t{1} << i % 64;
}

// The logit below which weights are less than `weight`, by a hundredth of a power of two more than floats can be off.
float logit_of(double weight, float largest, float scale) {
  constexpr double kSlack = 0.01;
  const double logit = static_cast<double>(largest) + (std::log2(weight) - kSlack) / static_cast<double>(scale);
  return static_cast<float>(std::max(logit, -static_cast<double>(kMost)));
}

}  // namespace

struct Sampler::Scratch {
  std::vector<float> adjusted, maxima, ordered;
  std::vector<double> sums;
  std::array<float, kernels::kSampleBlock> weights{};
  Candidates candidates;
};

void check_sampling(const SamplingOptions& o) {
  const auto check = [](bool good, const char* name, double value, const char* expected) {
    if (!good) fail(ErrorCode::kInvalidArgument, name, " is ", value, ", expected ", expected);
  };
  check(o.temperature >= 0 && o.temperature <= 100, "the temperature", o.temperature, "0 to 100");
  check(o.top_p > 0 && o.top_p <= 1, "top-p", o.top_p, "more than 0, at most 1");
  check(o.min_p >= 0 && o.min_p <= 1, "min-p", o.min_p, "0 to 1");
  check(o.repeat_penalty >= 0.01 && o.repeat_penalty <= 100, "the repeat penalty", o.repeat_penalty, ".01 to 100");
  check(std::fabs(o.presence_penalty) <= 100, "the presence penalty", o.presence_penalty, "-100 to 100");
  check(std::fabs(o.frequency_penalty) <= 100, "the frequency penalty", o.frequency_penalty, "-100 to 100");
  for (const auto& [token, bias] : o.logit_bias) {
    if (token < 0 || token >= text::kMaxVocabulary)
      fail(ErrorCode::kInvalidArgument, "the bias of token ", token, ": expected a token from 0 to ", text::kMaxVocabulary - 1);
    if (!(bias <= kMost))
      fail(ErrorCode::kInvalidArgument, "the bias of token ", token, " is ", bias, ", expected a number or -inf");
  }
}

Sampler::Sampler(const SamplingOptions& options, uint64_t first_draw)
    : options_(options), n_drawn_(first_draw), scratch_(std::make_unique<Scratch>()) {
  check_sampling(options);
}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

void Sampler::seen(text::TokenId token) {
  if (token < 0 || token >= text::kMaxVocabulary)
    fail(ErrorCode::kInvalidArgument, "token ", token, " is of no vocabulary: expected 0 to ", text::kMaxVocabulary - 1);
  if (options_.repeat_penalty != 1) set_bit(seen_, static_cast<size_t>(token));
}

// What is picked counts from the next time on.
void Sampler::picked(text::TokenId token, size_t n_vocabulary) {
  const auto i = static_cast<size_t>(token);
  const auto fit = [&](std::vector<uint64_t>& words) { words.resize(std::max(words.size(), (n_vocabulary + 63) / 64)); };
  if (options_.repeat_penalty != 1) {
    fit(seen_);
    set_bit(seen_, i);
  }
  if (options_.presence_penalty != 0 || options_.frequency_penalty != 0) {
    fit(answered_);
    counts_.resize(std::max(counts_.size(), n_vocabulary));
    set_bit(answered_, i);
    ++counts_[i];
  }
  ++n_drawn_;
}

std::span<const float> Sampler::adjust(std::span<const float> logits) {
  const bool counts = options_.presence_penalty != 0 || options_.frequency_penalty != 0;
  if (options_.logit_bias.empty() && options_.repeat_penalty == 1 && !counts) return logits;
  std::vector<float>& adjusted = scratch_->adjusted;
  adjusted.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : options_.logit_bias) {
    if (static_cast<size_t>(token) >= logits.size())
      fail(ErrorCode::kInvalidArgument, "the bias of token ", token, ": the vocabulary has ", logits.size());
    adjusted[static_cast<size_t>(token)] += bias;
  }
  const auto penalty = static_cast<float>(options_.repeat_penalty);
  for_each_bit(seen_, [&](size_t i) {
    if (i < adjusted.size()) adjusted[i] = adjusted[i] > 0 ? adjusted[i] / penalty : adjusted[i] * penalty;
  });
  for_each_bit(answered_, [&](size_t i) {
    if (i < adjusted.size())
      adjusted[i] -= static_cast<float>(options_.presence_penalty + options_.frequency_penalty * counts_[i]);
  });
  return adjusted;
}

text::TokenId Sampler::pick(std::span<const float> logits) {
  if (logits.empty()) fail(ErrorCode::kInvalidArgument, "there are no logits to pick a token from");
  const size_t n = logits.size();
  logits = adjust(logits);
  std::vector<float>& maxima = scratch_->maxima;
  maxima.resize(kernels::sample_blocks(n) * kernels::kSampleLanes);
  const float largest = kernels::lane_maxima(logits.data(), n, maxima.data());
  if (!(std::fabs(largest) <= kMost)) refuse(logits);
  text::TokenId token = 0;
  if (options_.temperature == 0 || options_.top_k == 1) {
    // Of equals the first: in the first block that has it.
    const auto first = std::find(maxima.begin(), maxima.end(), largest) - maxima.begin();
    const size_t start = static_cast<size_t>(first) / kernels::kSampleLanes * kernels::kSampleBlock;
    token = static_cast<text::TokenId>(std::find(logits.begin() + static_cast<std::ptrdiff_t>(start), logits.end(), largest) -
                                       logits.begin());
  } else {
    token = draw(logits, largest);
  }
  picked(token, n);
  return token;
}

// The masses of the blocks are known: only the one where `at` falls is looked at again.
text::TokenId Sampler::draw_from_all(std::span<const float> logits, float largest, float scale, double at) {
  const Place block = place_at(std::span<const double>(scratch_->sums), at);
  const size_t first = block.index * kernels::kSampleBlock, n = std::min(kernels::kSampleBlock, logits.size() - first);
  double sum = 0;
  kernels::exp2_sums(logits.data() + first, n, largest, scale, &sum, scratch_->weights.data());
  return static_cast<text::TokenId>(first + place_at(std::span<const float>(scratch_->weights).first(n), block.at).index);
}

// What the k-th largest logit is not below: the k-th largest of the maxima of disjoint sets of logits.
float Sampler::kth_largest_at_least(size_t k) {
  const std::vector<float>& maxima = scratch_->maxima;
  if (k > maxima.size()) return -kMost;
  std::vector<float>& ordered = scratch_->ordered;
  ordered.assign(maxima.begin(), maxima.end());
  std::nth_element(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(k - 1), ordered.end(), std::greater<>());
  return std::max(ordered[k - 1], -kMost);
}

text::TokenId Sampler::draw(std::span<const float> logits, float largest) {
  const double u = uniform(options_.seed, n_drawn_);
  const float scale = scale_of(options_.temperature);
  const bool all = options_.top_k == 0 || options_.top_k >= logits.size();
  double total = 0;
  if (all && (options_.top_p < 1 || options_.min_p == 0)) {
    std::vector<double>& sums = scratch_->sums;
    sums.resize(kernels::sample_blocks(logits.size()));
    kernels::exp2_sums(logits.data(), logits.size(), largest, scale, sums.data(), nullptr);
    total = std::accumulate(sums.begin(), sums.end(), 0.0);
    if (options_.top_p == 1) return draw_from_all(logits, largest, scale, u * total);
  }
  // What lies below `least` is not kept. For top-p: tokens of less than the n-th part of 1 - p have less than 1 - p together.
  Candidates& candidates = scratch_->candidates;
  float least = -kMost;
  if (!all) {
    least = kth_largest_at_least(options_.top_k);
  } else {
    const double n = static_cast<double>(logits.size());
    const double by_mass = (1 - options_.top_p) * total / n;
    least = logit_of(std::max(by_mass, options_.min_p), largest, scale);
  }
  candidates.fit(logits.size());
  candidates.gather(logits, least);
  candidates.weigh(largest, scale);
  if (!all) {
    candidates.keep_count(options_.top_k);
    if (options_.top_p < 1) total = candidates.total();
  }
  if (options_.top_p < 1) candidates.keep_mass(options_.top_p * total);
  if (options_.min_p > 0) candidates.keep_weights(static_cast<float>(options_.min_p));
  return candidates.draw(u);
}

}  // namespace kpd::llm
