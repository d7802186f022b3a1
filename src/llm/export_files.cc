// llm: the files and keys beside the tensors.
#include "llm/export_files.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/llm/sampling_defaults.h"
#include "kpd/text/tokenizer.h"
#include "kpd/text/tokenizer_export.h"
#include "llm/family_files.h"
#include "llm/known_names.h"

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;

constexpr auto kCopied = std::to_array<std::string_view>(
    {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
     "tokenizer.model", "chat_template.jinja", "chat_template.json", "generation_config.json"});

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

const char* dtype_key(BlockType type) {
  return type == BlockType::kF32 ? "float32" : type == BlockType::kF16 ? "float16" : "bfloat16";
}

// "no_vocab" is a file without one.
bool has_tokenizer(const io::GgufMetadata& metadata) {
  if (metadata.find("tokenizer.ggml.tokens") == nullptr || metadata.find("tokenizer.ggml.model") == nullptr) return false;
  const std::string& model = metadata.text("tokenizer.ggml.model");
  return model != "none" && model != "no_vocab";
}

std::string model_name(const std::string& path) {
  fs::path p = fs::path(path).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  const std::string name = p.extension() == ".gguf" ? p.stem().string() : p.filename().string();
  return name.empty() || name == "." ? "model" : name;
}

// generation_config.json's way to choose tokens, as llama.cpp says it.
void add_sampling(const std::string& folder, std::vector<std::pair<std::string, io::GgufValue>>& keys) {
  const SamplingDefaults defaults = sampling_defaults(folder, nullptr);
  if (defaults.source != "generation_config.json") return;
  const SamplingOptions& o = defaults.options;
  const auto real = [&](const char* name, double value) {
    keys.emplace_back(str("general.sampling.", name), static_cast<double>(static_cast<float>(value)));
  };
  real("temp", o.temperature);
  if (o.temperature > 0) {
    keys.emplace_back("general.sampling.top_k", static_cast<int64_t>(o.top_k));
    real("top_p", o.top_p);
    real("min_p", o.min_p);
  }
  if (o.repeat_penalty != 1) real("penalty_repeat", o.repeat_penalty);
}

// The ids that a GGUF file's tokenizer names, as config.json and generation_config.json have them.
io::Json token_ids(const io::GgufMetadata& metadata) {
  io::Json ids = io::Json::object();
  if (!has_tokenizer(metadata)) return ids;
  const text::Tokenizer tokenizer = text::Tokenizer::from_gguf(metadata);
  if (tokenizer.bos()) ids["bos_token_id"] = *tokenizer.bos();
  const auto ends = tokenizer.end_of_turn();
  if (ends.size() == 1) ids["eos_token_id"] = ends[0];
  if (ends.size() > 1) ids["eos_token_id"] = std::vector<text::TokenId>(ends.begin(), ends.end());
  if (metadata.find("tokenizer.ggml.padding_token_id") != nullptr)
    ids["pad_token_id"] = metadata.number("tokenizer.ggml.padding_token_id");
  return ids;
}

std::string generation_config(const io::GgufMetadata& metadata) {
  io::Json json = token_ids(metadata);
  const SamplingDefaults defaults = sampling_defaults(metadata.name, &metadata);
  if (defaults.source.starts_with("general.sampling")) {
    const SamplingOptions& o = defaults.options;
    json["do_sample"] = o.temperature > 0;
    if (o.temperature > 0) {
      json["temperature"] = o.temperature;
      json["top_k"] = o.top_k;
      json["top_p"] = o.top_p;
      json["min_p"] = o.min_p;
    }
    if (o.repeat_penalty != 1) json["repetition_penalty"] = o.repeat_penalty;
  }
  return json.empty() ? "" : json.dump(2) + "\n";
}

}  // namespace

std::span<const std::string_view> copied_files() { return kCopied; }

std::vector<std::pair<std::string, io::GgufValue>> general_keys(const Checkpoint::Parts& from, const char* architecture,
                                                                BlockType type) {
  // llama.cpp's numbers of files that are mostly of a type.
  const uint64_t file_type = type == BlockType::kF32 ? 0 : type == BlockType::kF16 ? 1 : 32;
  std::vector<std::pair<std::string, io::GgufValue>> keys = {{"general.architecture", std::string(architecture)},
                                                             {"general.type", std::string("model")}};
  if (from.metadata == nullptr) {
    keys.emplace_back("general.name", model_name(from.weights.name()));
    add_sampling(from.weights.name(), keys);
  } else {
    for (const auto& [key, value] : from.metadata->values) {
      const bool anew = key == "general.architecture" || key == "general.type" || key == "general.file_type" ||
                        key == "general.alignment" || key == "general.quantization_version";
      if (key.starts_with("general.") && !anew) keys.emplace_back(key, value);
    }
  }
  keys.emplace_back("general.file_type", file_type);
  return keys;
}

void add_tokenizer_keys(const Checkpoint::Parts& from, const char* architecture, io::GgufMetadata& metadata,
                        std::vector<std::string>& notes) {
  if (from.metadata != nullptr && has_tokenizer(*from.metadata)) {
    for (const auto& [key, value] : from.metadata->values) {
      if (key.starts_with("tokenizer.")) metadata.values.emplace_back(key, value);
    }
    return;
  }
  const fs::path folder(from.weights.name());
  if (from.metadata == nullptr && is_there(folder / "tokenizer.json")) {
    const text::Tokenizer tokenizer = text::Tokenizer::from_directory(folder.string());
    for (std::string& note : text::add_gguf_tokenizer(tokenizer, architecture, from.description.n_vocabulary, metadata))
      notes.push_back(std::move(note));
    return;
  }
  metadata.values.emplace_back("tokenizer.ggml.model", std::string("no_vocab"));
  notes.emplace_back(from.metadata != nullptr ? "the model has no tokenizer, and neither has the new file"
                                              : "the folder has no tokenizer.json; the new file has no tokenizer");
}

io::Json new_config(const Checkpoint::Parts& from, BlockType type) {
  io::Json config = write_config(from.description);
  config["dtype"] = dtype_key(type);
  if (from.metadata != nullptr) {
    config.update(token_ids(*from.metadata));
    // Some classes have one of their own, beyond a small vocabulary.
    if (!config.contains("pad_token_id")) config["pad_token_id"] = nullptr;
    return config;
  }
  // Read before: it is an object, with a text_config where it has a text half.
  io::Json whole = io::Json::parse(from.configuration, nullptr, false);
  if (whole.is_discarded()) return config;
  const io::Json& old = from.description.text_half ? whole["text_config"] : whole;
  for (const auto& [key, value] : old.items()) {
    const bool of_files = key == "torch_dtype" || key == "auto_map" || key == "transformers_version" ||
                          key.starts_with("vision") || key.starts_with("audio") || key.starts_with("quantization");
    if (of_files || value.is_null() || config.contains(key) || !is_harmless_config(key, value)) continue;
    config[key] = value;
  }
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (from.description.text_half && !config.contains(key) && whole.contains(key)) config[key] = whole[key];
  }
  // Of a hybrid's own values the old ones are right.
  for (const char* key : {"mamba_n_heads", "mamba_d_head"}) {
    if (config.contains(key) && old.contains(key)) config[key] = old[key];
  }
  return config;
}

void add_other_files(const Checkpoint::Parts& from, std::vector<TextFile>& files, std::vector<std::string>& notes) {
  if (from.metadata == nullptr) {
    for (const std::string_view name : kCopied) {
      const fs::path path = fs::path(from.weights.name()) / name;
      if (is_there(path)) files.push_back({std::string(name), "", path.string()});
    }
    return;
  }
  if (has_tokenizer(*from.metadata)) {
    auto [tokenizer, config] = text::tokenizer_files(*from.metadata);
    files.push_back({"tokenizer.json", std::move(tokenizer)});
    files.push_back({"tokenizer_config.json", std::move(config)});
  } else {
    notes.emplace_back("the GGUF file has no tokenizer, and neither has the new folder");
  }
  if (std::string text = generation_config(*from.metadata); !text.empty())
    files.push_back({"generation_config.json", std::move(text)});
}

}  // namespace kpd::llm
