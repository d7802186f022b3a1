// tools: what `kpd inspect` shows of a model beyond its tensors: architecture and tokenizer. inspect_language.cc asks kpd::llm;
// a build without it has inspect_language_missing.cc, and shows the tensors alone.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "kpd/io/weights.h"

namespace kpd::tool {

struct LanguageFacts {
  nlohmann::ordered_json description = nlohmann::ordered_json::object();  // fields of --json: family, n_layers ...
  nlohmann::ordered_json tokenizer;                                       // of --json; null where the files have none
  std::string problem;                                                    // why there is no description
  std::string description_text, tokenizer_text;                           // lines of the text, "" where there is none
};

// Of the weights that were opened at `path`. Throws Error for files that are wrong; what kpd does not run is a `problem`.
LanguageFacts language_facts(const std::string& path, const io::Weights& weights);

}  // namespace kpd::tool
