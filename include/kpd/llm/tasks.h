// llm: how often a model prefers the right ending: HellaSwag, PIQA and LAMBADA, scored as lm-evaluation-harness does it.
//
// An ending follows its context behind one space. Context and ending are encoded together, and what lies behind the context's
// own number of tokens is scored; space at the end of a context counts to the ending. acc takes the largest log-likelihood,
// acc_norm the largest per character of the ending. LAMBADA: acc is the share of last words that are the most probable token by
// token. HellaSwag's context is taken as it stands in llama.cpp's file, where lm-eval's data set begins its last part by a
// capital.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/llm/model.h"

namespace kpd::llm {

enum class Task { kHellaswag, kPiqa, kLambada };
const char* task_name(Task task);          // "hellaswag", "piqa", "lambada"
Task parse_task(const std::string& name);  // throws Error(kInvalidArgument) listing the names

struct TaskItem {
  std::string context;
  std::vector<std::string> endings;  // without the space before them
  size_t right = 0;                  // index of the right one, below their number
};

struct TaskOptions {
  size_t chunk = 512;  // tokens of a context per step
  std::string cache = "f32";
  std::vector<std::string> cache_layers{};  // layers with another spec: "0,29=f32"
};

struct ItemScore {
  std::vector<double> log_likelihoods;  // of each ending, natural logarithm
  bool greedy = false;                  // the right ending's tokens are the most probable ones
  size_t pick = 0, pick_norm = 0;       // by sum, and by sum per character
};

struct TaskResult {
  std::vector<ItemScore> items;  // of those done
  double acc = 0, acc_stderr = 0;
  double acc_norm = 0, acc_norm_stderr = 0;  // not of LAMBADA
  double perplexity = 0;                     // of LAMBADA's last words
  size_t tokens = 0;                         // that went through the model
  double seconds = 0;
};

// The endings of an item are one batch behind their common prefix, which is computed once. Contexts that are too long for
// the model are truncated at the front. progress(items done) returns false to end with what there is (at least one item); an
// empty function never ends it. Throws Error(kInvalidArgument) for an ending that adds no token or is longer than the model's
// context, and, before any work, for no items, an item without endings, and a right ending that is none of them.
TaskResult run_task(Model& model, const text::Tokenizer& tokenizer, Task task, std::span<const TaskItem> items,
                    const TaskOptions& options, const std::function<bool(size_t)>& progress);

}  // namespace kpd::llm
