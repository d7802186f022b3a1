// llm: how probable a model finds the rest of a text, given its beginning: the log-likelihoods that tasks are made of.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kpd/llm/model.h"

namespace kpd::llm {

// Tokens of which those from n_context on are scored, each given all before it.
struct ScoredText {
  std::vector<text::TokenId> tokens;
  size_t n_context = 0;  // at least 1, below the number of tokens
};

struct TextScore {
  double log_likelihood = 0;  // of all scored tokens together, natural logarithm
  bool greedy = true;         // each of them is the most probable one
};

struct ScoreOptions {
  size_t chunk = 512;  // tokens per step, of all texts in it together
  std::string cache = "f32";
  std::vector<std::string> cache_layers{};  // layers with another spec: "0,29=f32"
};

// Scores in the order of the texts. What texts begin with in common is computed once as far as it pays, short texts share
// steps; neither changes a score. progress(texts done) returns false to end the work: Error(kCancelled); an empty function
// never ends it. Throws Error(kInvalidArgument), before any work, for an n_context out of range, and for a text of more than
// the model's context and one token, which is predicted and not read.
std::vector<TextScore> score_texts(Model& model, std::span<const ScoredText> texts, const ScoreOptions& options,
                                   const std::function<bool(size_t)>& progress);

}  // namespace kpd::llm
