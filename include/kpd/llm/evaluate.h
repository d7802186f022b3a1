// llm: how good a model is at a text: perplexity under the two protocols in use, and, against a reference model, the divergence
// of its predictions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/llm/model.h"

namespace kpd::llm {

enum class Protocol {
  kPaper,     // GPTQ, QTIP: tokenized once as a whole, disjoint windows, tokens 2 to ctx of each scored, mean of the windows'
              // means
  kLlamaCpp,  // llama-perplexity: the first token of every window is BOS if the model adds one, tokens after the first half
              // scored, mean over tokens; a special token's spelling in the text is text
};
const char* protocol_name(Protocol protocol);              // "paper", "llama.cpp"
Protocol parse_protocol(const std::string& name);          // throws Error(kInvalidArgument) listing the names
const char* protocol_definition(Protocol protocol);        // one sentence, printed with the figure
text::EncodeOptions protocol_encoding(Protocol protocol);  // how it makes tokens of the text
// What it reads of a file's bytes: llama.cpp all but a line end at the end, the papers' scripts CR LF and CR as LF.
std::string protocol_text(Protocol protocol, std::string_view bytes);

struct EvaluationPlan {
  Protocol protocol = Protocol::kPaper;
  size_t context = 2048;
  size_t max_windows = 0;  // 0: as many as the text has
  size_t chunk = 512;      // tokens per step
  std::string cache = "f32";
  std::vector<std::string> cache_layers{};  // layers with another spec: "0,29=f32"
};

// Over positions within a window, [from, to).
struct Bucket {
  size_t from = 0, to = 0, tokens = 0;
  double loss_sum = 0, kld_sum = 0;
};

struct Evaluation {
  size_t windows = 0, tokens = 0;  // windows done and tokens scored
  double loss = 0;                 // mean negative log-likelihood, natural logarithm
  double perplexity = 0, perplexity_stderr = 0;
  bool compared = false;  // what follows is there with a reference only
  double reference_perplexity = 0, ln_ppl_ratio = 0;
  double kld_mean = 0, kld_stderr = 0, kld_median = 0, kld_p90 = 0, kld_p99 = 0, kld_p999 = 0, kld_max = 0;
  double same_top1 = 0;
  std::vector<Bucket> buckets;
  double seconds = 0;
};

// The windows of a text that the protocol asks for. Throws Error(kInvalidArgument) if the text has less than one.
std::vector<std::vector<text::TokenId>> make_windows(const EvaluationPlan& plan, std::span<const text::TokenId> text,
                                                     std::optional<text::TokenId> bos);

// `reference` may be null. progress(windows done) returns false to end with what there is (at least one window); an
// empty function never ends it.
Evaluation evaluate(Model& model, Model* reference, const EvaluationPlan& plan,
                    std::span<const std::vector<text::TokenId>> windows, const std::function<bool(size_t)>& progress);

}  // namespace kpd::llm
