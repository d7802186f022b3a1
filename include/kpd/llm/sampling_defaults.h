// llm: how a model wants to be sampled, by the files it came in.
#pragma once

#include <string>

#include "kpd/llm/sampler.h"

namespace kpd::io {
class GgufMetadata;
}

namespace kpd::llm {

// What is done where a user says nothing about sampling.
struct SamplingDefaults {
  SamplingOptions options;
  std::string source;  // where they are from: "generation_config.json", "general.sampling of the GGUF file", "kpd's defaults"
  // What the file asks for and kpd does not do, for a note ("mirostat 2"); empty: nothing.
  std::string ignored;
  std::string text() const;  // "temperature 0.6, top-k 20, top-p 0.95 (generation_config.json)"
};

// The defaults of a model: a Hugging Face folder's generation_config.json, else general.sampling.* of `gguf` (null: there is no
// such file), as llama.cpp writes them, else temperature 0.8, top-k 40, top-p 0.95, min-p 0.05. `do_sample: false` is greedy;
// values that a generation_config.json with do_sample leaves out are transformers' (temperature 1, top-k 50), those that a GGUF
// file leaves out are llama.cpp's, which are kpd's. A repetition penalty counts with any of them. Throws Error(kCorruptData)
// naming file and key.
SamplingDefaults sampling_defaults(const std::string& path, const io::GgufMetadata* gguf);

}  // namespace kpd::llm
