// llm: what stands beside the tensors of a new file: general metadata, configuration, tokenizer, generation settings. Private.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kpd/io/gguf.h"
#include "llm/checkpoint_parts.h"
#include "io/json.h"

namespace kpd::llm {

// A file of a folder: its text, or the file that it is a copy of.
struct TextFile {
  std::string name, text, from{};
};

// Files of a Hugging Face folder that are copied as they are.
std::span<const std::string_view> copied_files();

// general.*, the architecture first; of a folder its sampling too.
std::vector<std::pair<std::string, io::GgufValue>> general_keys(const Checkpoint::Parts& from, const char* architecture,
                                                                BlockType type);
// tokenizer.*, from the GGUF file or the folder; what is lost is noted or refused.
void add_tokenizer_keys(const Checkpoint::Parts& from, const char* architecture, io::GgufMetadata& metadata,
                        std::vector<std::string>& notes);

// config.json: the network's keys, those of the type and of tokens, and whatever the old one says that changes nothing.
io::Json new_config(const Checkpoint::Parts& from, BlockType type);
// The tokenizer's files and generation_config.json.
void add_other_files(const Checkpoint::Parts& from, std::vector<TextFile>& files, std::vector<std::string>& notes);

}  // namespace kpd::llm
