// bench: what a token costs after its logits are known. A draw against one pass over the logits (the limit: they are read at
// least once) and against a draw by putting the likeliest in order, as kpd did before.
//
//   build/bench/bench_sampler MODEL [ROWS]     rows of MODEL's own logits over a text (default 64), and a flat row
//   build/bench/bench_sampler N                made-up rows of N logits
//
// One thread; milliseconds of its processor time a token, the best of several rounds over all rows.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kpd/base/cpu.h"
#include "kpd/base/error.h"
#include "kpd/base/rng.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/model.h"
#include "kpd/llm/sampler.h"
#include "kpd/text/tokenizer.h"
#include "timing.h"

namespace {

using namespace kpd;
using namespace kpd::bench;
using llm::SamplingOptions;
using text::TokenId;

using Rows = std::vector<std::vector<float>>;

constexpr const char* kText =
    "#include <vector>\n\n// Returns the largest sum of a contiguous part of the list, 0 for an empty one.\nint "
    "largest_sum(const "
    "std::vector<int>& list) {\n  int best = 0, here = 0;\n  for (const int value : list) {\n    here = std::max(0, here + "
    "value);\n"
    "    best = std::max(best, here);\n  }\n  return best;\n}\n\nOnce upon a time a baker in the old town asked his daughter "
    "what she "
    "wanted for her birthday, and she said that a map of all the rivers would be nice, if he could draw one. He could not, but "
    "he "
    "knew somebody at the harbour who had sailed most of them.";

Rows model_rows(const std::string& path, size_t n_rows) {
  llm::Model model = llm::Model::load(path);
  const io::GgufMetadata metadata = io::load_gguf_metadata(path);
  std::vector<TokenId> tokens = text::Tokenizer::from_gguf(metadata).encode(kText);
  tokens.resize(std::min(tokens.size(), n_rows));
  const auto cache = model.make_cache("f32", tokens.size());
  const llm::BatchPart part[] = {{0, tokens, {}, llm::BatchPart::Want::kAll, {}}};
  const std::span<const float> logits = model.forward(part, *cache);
  const size_t n = model.description().n_vocabulary;
  Rows rows;
  for (size_t r = 0; r < tokens.size(); ++r)
    rows.emplace_back(logits.begin() + static_cast<std::ptrdiff_t>(r * n),
                      logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * n));
  return rows;
}

Rows made_up_rows(size_t n, float spread, size_t n_rows) {
  CounterRng rng(1);
  Rows rows(n_rows, std::vector<float>(n));
  for (std::vector<float>& row : rows) {
    for (float& v : row) v = spread * static_cast<float>(rng.next_normal());
  }
  return rows;
}

// Best time a row, in milliseconds.
template <class Fn>
double best(const Rows& rows, const Fn& fn) {
  double least = 1e9;
  for (int round = 0; round < 12; ++round) {
    least = std::min(least, seconds(1, [&] {
                       for (const std::vector<float>& row : rows) fn(row);
                     }));
  }
  return least * 1e3 / static_cast<double>(rows.size());
}

// The limit: every logit read once.
double sum_of(const std::vector<float>& row) {
  float sums[16] = {};
  for (size_t i = 0; i + 16 <= row.size(); i += 16) {
    for (size_t k = 0; k < 16; ++k) sums[k] += row[i + k];
  }
  return static_cast<double>(sums[0] + sums[7] + sums[15]);
}

// The rival: pairs of logit and token, their exponentials in double, and the likeliest put in order as far as the draw goes.
class BySorting {
 public:
  explicit BySorting(const SamplingOptions& o) : o_(o) {}
  TokenId pick(const std::vector<float>& logits) {
    candidates_.clear();
    for (size_t i = 0; i < logits.size(); ++i) candidates_.emplace_back(logits[i], static_cast<TokenId>(i));
    const size_t n = o_.top_k == 0 ? candidates_.size() : std::min(o_.top_k, candidates_.size());
    if (n < candidates_.size()) std::nth_element(candidates_.begin(), at(n), candidates_.end(), before);
    candidates_.resize(n);
    largest_ = std::max_element(logits.begin(), logits.end())[0];
    double total = 0, kept = 0;
    for (const auto& c : candidates_) total += weight(c);
    n_sorted_ = 0;
    size_t end = n;
    kept = total;
    if (o_.top_p < 1 || o_.min_p > 0) {
      kept = 0;
      for (end = 0; end < n; ++end) {
        const double w = weight(ranked(end));
        if (end > 0 && !(kept < o_.top_p * total && w >= o_.min_p)) break;
        kept += w;
      }
    }
    double u = rng_.next_double() * kept;
    for (size_t i = 0; i + 1 < end; ++i) {
      u -= weight(ranked(i));
      if (u < 0) return ranked(i).second;
    }
    return ranked(end - 1).second;
  }

 private:
  using Candidate = std::pair<float, TokenId>;
  static bool before(const Candidate& a, const Candidate& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  }
  std::vector<Candidate>::iterator at(size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); }
  double weight(const Candidate& c) const {
    return std::exp((static_cast<double>(c.first) - static_cast<double>(largest_)) / o_.temperature);
  }
  const Candidate& ranked(size_t rank) {
    if (rank >= n_sorted_) {
      const size_t first = n_sorted_;
      n_sorted_ = std::min(candidates_.size(), std::max<size_t>(256, 8 * n_sorted_));
      if (n_sorted_ < candidates_.size()) std::nth_element(at(first), at(n_sorted_), candidates_.end(), before);
      std::sort(at(first), at(n_sorted_), before);
    }
    return candidates_[rank];
  }

  SamplingOptions o_;
  CounterRng rng_{1};
  std::vector<Candidate> candidates_;
  float largest_ = 0;
  size_t n_sorted_ = 0;
};

void measure(const char* name, const Rows& rows) {
  volatile double sink = 0;
  const double read = best(rows, [&](const std::vector<float>& row) { sink = sink + sum_of(row); });
  for (const SamplingOptions& o :
       {SamplingOptions{}, SamplingOptions{.temperature = 0.7}, SamplingOptions{.temperature = 1},
        SamplingOptions{.temperature = 0.7, .top_p = 0.95}, SamplingOptions{.temperature = 1, .top_p = 0.95},
        SamplingOptions{.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05},
        SamplingOptions{.temperature = 1, .min_p = 0.05}, SamplingOptions{.temperature = 1, .top_k = 10000},
        SamplingOptions{.temperature = 0.8, .top_p = 0.95, .repeat_penalty = 1.1, .presence_penalty = 0.5}}) {
    llm::Sampler sampler(o);
    BySorting sorting(o);
    const double ours = best(rows, [&](const std::vector<float>& row) { sink = sink + sampler.pick(row); });
    std::printf("| %s | %zu | %s | %.3f | %.3f | ", name, rows[0].size(), llm::describe_sampling(o).c_str(), read, ours);
    if (o.temperature == 0 || o.repeat_penalty != 1) {
      std::printf("|\n");
    } else {
      std::printf("%.3f |\n", best(rows, [&](const std::vector<float>& row) { sink = sink + sorting.pick(row); }));
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "151936";
  std::printf(
      "instruction set %s, ms a token\n\n| logits | vocabulary | sampling | one pass | kpd | by sorting "
      "|\n|---|---|---|---|---|---|\n",
      active_isa().c_str());
  try {
    size_t n = 0;
    if (what.find_first_not_of("0123456789") == std::string::npos) {
      n = static_cast<size_t>(std::atoll(what.c_str()));
      measure("normal, sigma 3", made_up_rows(n, 3, 16));
    } else {
      const Rows rows = model_rows(what, argc > 2 ? static_cast<size_t>(std::atoll(argv[2])) : 64);
      n = rows[0].size();
      measure("the model's", rows);
    }
    measure("flat, sigma 0.1", made_up_rows(n, 0.1f, 16));
    measure("equal", made_up_rows(n, 0, 16));
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_sampler: %s\n", e.what());
    return 1;
  }
  return 0;
}
