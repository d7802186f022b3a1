#include "kpd/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "kpd/base/error.h"
#include "kpd/base/rng.h"
#include "kpd/io/file.h"
#include "llm/json.h"

namespace kpd::llm {
namespace {

// Index of the largest, of equals the first.
size_t likeliest(std::span<const float> logits) {
  if (logits.empty()) fail(ErrorCode::kInvalidArgument, "there are no logits to pick a token from");
  constexpr float kMost = std::numeric_limits<float>::max();
  size_t best = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= largest) continue;  // neither NaN nor infinity gets past this
    if (!(logits[i] <= kMost)) {
      fail(ErrorCode::kCorruptData, "the model gave token ", i, " the logit ", logits[i] > kMost ? "inf" : "NaN",
           ", expected a finite number (is it damaged?)");
    }
    largest = logits[i];
    best = i;
  }
  if (largest < -kMost)
    fail(ErrorCode::kCorruptData, "the model gave all ", logits.size(), " tokens the logit -inf, expected a finite one");
  return best;
}

}  // namespace

void check_sampling(const SamplingOptions& o) {
  const auto check = [](bool good, const char* name, double value, const char* expected) {
    if (!good) fail(ErrorCode::kInvalidArgument, name, " is ", value, ", expected ", expected);
  };
  check(o.temperature >= 0 && o.temperature <= 100, "the temperature", o.temperature, "0 to 100");
  check(o.top_p > 0 && o.top_p <= 1, "top-p", o.top_p, "more than 0, at most 1");
  check(o.min_p >= 0 && o.min_p <= 1, "min-p", o.min_p, "0 to 1");
  check(o.repeat_penalty >= 0.01f && o.repeat_penalty <= 100, "the repeat penalty", o.repeat_penalty, ".01 to 100");
}

SamplingOptions sampling_of_folder(const std::string& folder, const SamplingOptions& defaults) {
  const std::filesystem::path path = std::filesystem::path(folder) / "generation_config.json";
  SamplingOptions o = defaults;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return o;
  const io::MappedFile file = io::map_file(path.string());
  const Json config = parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
  if (!config.is_object()) fail(ErrorCode::kCorruptData, path.string(), ": not a JSON object");
  const auto number = [&](const char* key, double otherwise) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null()) return otherwise;
    if (!it->is_number()) fail(ErrorCode::kCorruptData, path.string(), ": ", key, " is not a number");
    return it->get<double>();
  };
  const auto sample = config.find("do_sample");
  // transformers looks at the other values only if it is asked to sample.
  if (sample == config.end() || !sample->is_boolean() || !sample->get<bool>()) return o;
  o.temperature = number("temperature", 1);
  o.top_k = static_cast<size_t>(std::clamp(number("top_k", 50), 0.0, 1e9));
  o.top_p = number("top_p", 1);
  o.min_p = number("min_p", 0);
  o.repeat_penalty = number("repetition_penalty", 1);
  check_sampling(o);
  return o;
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) { check_sampling(options); }

void Sampler::seen(TokenId token) {
  if (token < 0 || token >= kMaxVocabulary)
    fail(ErrorCode::kInvalidArgument, "token ", token, " is of no vocabulary: expected 0 to ", kMaxVocabulary - 1);
  const auto i = static_cast<size_t>(token);
  if (i >= seen_.size()) seen_.resize(i + 1);
  seen_[i] = true;
}

void Sampler::penalize(std::span<float> logits) const {
  const auto penalty = static_cast<float>(options_.repeat_penalty);
  for (size_t i = 0; i < std::min(seen_.size(), logits.size()); ++i) {
    if (seen_[i]) logits[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
  }
}

TokenId Sampler::pick(std::span<const float> logits) {
  if (options_.repeat_penalty != 1) {
    adjusted_.assign(logits.begin(), logits.end());
    penalize(adjusted_);
    logits = adjusted_;
  }
  const size_t best = likeliest(logits);
  const TokenId token = options_.temperature == 0 ? static_cast<TokenId>(best) : draw(logits, logits[best]);
  seen(token);
  ++drawn_;
  return token;
}

TokenId Sampler::draw(std::span<const float> logits, float largest) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) candidates_.emplace_back(logits[i], static_cast<TokenId>(i));
  const auto before = [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; };
  size_t n = options_.top_k == 0 ? candidates_.size() : std::min(options_.top_k, candidates_.size());
  if (n < candidates_.size())
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(n), candidates_.end(), before);
  candidates_.resize(n);
  const auto weight = [&](const auto& c) {
    return std::exp((static_cast<double>(c.first) - static_cast<double>(largest)) / options_.temperature);
  };
  double total = 0;
  for (const auto& c : candidates_) total += weight(c);
  // A draw seldom goes beyond the first hundreds: putting a whole vocabulary in order would cost more than a small model.
  size_t n_sorted = 0;
  const auto ranked = [&](size_t rank) {
    if (rank >= n_sorted) {
      const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(n_sorted);
      n_sorted = std::min(n, std::max<size_t>(256, 8 * n_sorted));
      const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(n_sorted);
      if (n_sorted < n) std::nth_element(first, end, candidates_.end(), before);
      std::sort(first, end, before);
    }
    return candidates_[rank];
  };
  double kept = total;
  size_t end = n;
  if (options_.top_p < 1 || options_.min_p > 0) {
    kept = 0;
    for (end = 0; end < n; ++end) {
      const double w = weight(ranked(end));
      if (end > 0 && !(kept < options_.top_p * total && w >= options_.min_p)) break;
      kept += w;
    }
  }
  const std::array<uint32_t, 4> words =
      philox4x32({static_cast<uint32_t>(drawn_), static_cast<uint32_t>(drawn_ >> 32), 0, 0},
                 {static_cast<uint32_t>(options_.seed), static_cast<uint32_t>(options_.seed >> 32)});
  double at = (static_cast<double>(words[0]) + 0.5) / 4294967296.0 * kept;
  for (size_t i = 0; i + 1 < end; ++i) {
    at -= weight(ranked(i));
    if (at < 0) return ranked(i).second;
  }
  return ranked(end - 1).second;
}

}  // namespace kpd::llm
