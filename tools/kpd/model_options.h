// tools: the options of every command that loads a language model, and how such a model is loaded and announced.
#pragma once

#include <string>

#include "cli.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/model.h"

namespace kpd::tool {

struct ModelOptions {
  std::string arithmetic_text, chunk_text;

  void add_arithmetic(CLI::App& app, const char* otherwise);
  void add_chunk(CLI::App& app);
  llm::Arithmetic arithmetic(llm::Arithmetic otherwise) const;
  size_t chunk() const;  // tokens of a prompt per step
};

struct LoadedModel {
  llm::Model model;
  llm::Tokenizer tokenizer;
  double seconds = 0;
};

// Model and tokenizer of a GGUF file or a Hugging Face folder. Says on stderr what was loaded: family, bytes in the file and in
// memory.
LoadedModel load_model(const std::string& path, llm::Arithmetic arithmetic, int threads);

// The tokenizer alone: the folder's tokenizer.json, else what the GGUF file brings (null: there is none).
llm::Tokenizer load_tokenizer(const std::string& path, const io::GgufMetadata* gguf);

}  // namespace kpd::tool
