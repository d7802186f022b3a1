// llm: the tokens that top-k, top-p and min-p leave of a row of logits, found without putting the row in order. Private.
//
// What is kept is a prefix of the tokens in descending order of their logits, of equals the smaller id first. Its end is found
// by a histogram over the range of the logits (of tokens for top-k, of mass for top-p), then by one over the bucket where the
// end lies, until few are left to be sorted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kpd/text/tokenizer.h"

namespace kpd::llm {

// Values laid end to end, each as wide as it is: the index of the one in which `at` falls, 0 <= at < their sum, and how far in.
// A value of 0 is never chosen, and where sums were rounded differently and `at` lies behind the end, the last other one is.
struct Place {
  size_t index = 0;
  double at = 0;
};
template <class T>
Place place_at(std::span<const T> widths, double at) {
  Place place;
  for (size_t i = 0; i < widths.size(); ++i) {
    const auto width = static_cast<double>(widths[i]);
    if (!(width > 0)) continue;
    place = {i, at};
    if (at < width) break;
    at -= width;
  }
  return place;
}

// Thread-compatible. Only fit() allocates.
class Candidates {
 public:
  // Room for a row of n logits. What was gathered is gone.
  void fit(size_t n);
  // Takes the tokens whose logits are `least`, which is finite, or more.
  void gather(std::span<const float> logits, float least);
  // Gives all of them their weights, 2^((logit - shift) scale) as kernels::exp2_sums computes it.
  void weigh(float shift, float scale);

  // What is not kept gets the weight 0. A count comes before masses and weights.
  void keep_count(size_t n);       // the n with the largest logits
  void keep_mass(double mass);     // the shortest prefix whose weights sum to `mass` or more; at least one token
  void keep_weights(float least);  // those of this weight or more

  std::vector<text::TokenId> kept() const;  // those with a weight, ascending
  // The token in whose weight the share u of the weights of all falls, 0 <= u < 1.
  text::TokenId draw(double u);
  double total();  // of the weights

 private:
  template <class Measure>
  void keep_prefix(double limit, const Measure& measure);
  template <class Measure>
  uint32_t last_of_prefix(double limit, const Measure& measure);
  template <class Measure>
  size_t narrow(size_t n_active, double limit, double& before, const Measure& measure);
  std::pair<float, float> range(size_t n_active) const;
  template <class Good>
  void drop_but(const Good& good);

  size_t capacity_ = 0, size_ = 0;
  std::unique_ptr<float[]> values_, weights_;
  std::unique_ptr<uint32_t[]> ids_;
  std::unique_ptr<uint32_t[]> active_;   // candidates among which a prefix ends, ascending
  std::unique_ptr<uint16_t[]> buckets_;  // of the active ones
  std::unique_ptr<double[]> sums_;       // of weights, by block
};

}  // namespace kpd::llm
