// tools: how `kpd generate` chooses among tokens: what the command line says, else what the model's files ask for, else kpd's
// defaults; and the line that says so.
#pragma once

#include <string>

#include "cli.h"
#include "kpd/llm/sampler.h"
#include "kpd/llm/sampling_defaults.h"
#include "model_options.h"

namespace kpd::tool {

struct SamplingArgs {
  std::string temperature, top_k, top_p, min_p, repeat_penalty;

  void add_options(CLI::App& app);
  // Over `defaults`. Throws UsageError for values that make no sense, alone or together.
  llm::SamplingOptions over(const llm::SamplingOptions& defaults) const;
};

struct Sampling {
  llm::SamplingOptions options;
  std::string line;  // "sampling: temperature 0.8, top-k 40 (kpd's defaults); seed 5"
};

// The seed comes from --seed, or from the system where something is drawn.
Sampling choose_sampling(const SamplingArgs& args, const OpenedModel& model, const CommonOptions& common);

}  // namespace kpd::tool
