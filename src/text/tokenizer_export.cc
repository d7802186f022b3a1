// text: a tokenizer's parts written as tokenizer.json and tokenizer_config.json.
#include "kpd/text/tokenizer_export.h"

#include <algorithm>
#include <filesystem>

#include "io/json.h"
#include "io/text.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/io/gguf.h"
#include "text/tokenizer_parts.h"

namespace kpd::text {
namespace {

using Json = nlohmann::ordered_json;

Json pattern_json(const Pattern& pattern) { return {{pattern.is_literal() ? "String" : "Regex", pattern.source()}}; }

// A list of steps as the format has it: nothing, the step, or a Sequence.
Json sequence(std::vector<Json> steps, const char* list) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {list, steps}};
}

Json byte_level_json(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json normalizer_json(const TokenizerParts& parts) {
  std::vector<Json> steps;
  for (const NormalizerStep& step : parts.normalizer) {
    if (step.kind == NormalizerStep::Kind::kNfc) {
      steps.push_back({{"type", "NFC"}});
    } else if (step.kind == NormalizerStep::Kind::kPrepend) {
      steps.push_back({{"type", "Prepend"}, {"prepend", step.text}});
    } else {
      steps.push_back({{"type", "Replace"}, {"pattern", pattern_json(step.pattern)}, {"content", step.text}});
    }
  }
  return sequence(std::move(steps), "normalizers");
}

// Of the steps that a GGUF file's tokenizer may have.
Json pre_tokenizer_json(const TokenizerParts& parts) {
  std::vector<Json> steps;
  for (const PreTokenizerStep& step : parts.pre_tokenizer) {
    if (step.kind == PreTokenizerStep::Kind::kByteLevel) {
      steps.push_back(byte_level_json(step.add_prefix_space, step.use_regex));
    } else if (step.kind == PreTokenizerStep::Kind::kDigits) {
      steps.push_back({{"type", "Digits"}, {"individual_digits", step.individual_digits}});
    } else if (step.kind == PreTokenizerStep::Kind::kPunctuation) {
      steps.push_back({{"type", "Punctuation"}, {"behavior", "Contiguous"}});
    } else {
      steps.push_back(
          {{"type", "Split"}, {"pattern", pattern_json(step.pattern)}, {"behavior", "Isolated"}, {"invert", false}});
    }
  }
  return sequence(std::move(steps), "pretokenizers");
}

Json decoder_json(const TokenizerParts& parts) {
  std::vector<Json> steps;
  for (const DecoderStep& step : parts.decoder) {
    if (step.kind == DecoderStep::Kind::kByteLevel) {
      steps.push_back(byte_level_json(true, true));
    } else if (step.kind == DecoderStep::Kind::kReplace) {
      steps.push_back({{"type", "Replace"}, {"pattern", pattern_json(step.pattern)}, {"content", step.text}});
    } else if (step.kind == DecoderStep::Kind::kStrip) {
      steps.push_back({{"type", "Strip"}, {"content", step.text}, {"start", step.start}, {"stop", step.stop}});
    } else {
      steps.push_back({{"type", step.kind == DecoderStep::Kind::kFuse ? "Fuse" : "ByteFallback"}});
    }
  }
  return sequence(std::move(steps), "decoders");
}

Json post_processor_json(const TokenizerParts& parts) {
  if (parts.prefix.empty() && parts.suffix.empty()) return nullptr;
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto put = [&](Json& to, const std::vector<TokenId>& ids, int type) {
    for (const TokenId id : ids) {
      const std::string& text = parts.model.tokens[static_cast<size_t>(id)];
      to.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
      tokens[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    }
  };
  for (const int type : {0, 1}) {
    for (Json* side : {&single, &pair}) {
      if (type == 1 && side == &single) continue;
      put(*side, parts.prefix, type);
      side->push_back({{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}});
      put(*side, parts.suffix, type);
    }
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

Json added_tokens_json(const TokenizerParts& parts) {
  std::vector<const AddedToken*> tokens;
  for (const AddedToken& token : parts.added.tokens()) tokens.push_back(&token);
  std::sort(tokens.begin(), tokens.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  Json out = Json::array();
  for (const AddedToken* token : tokens) {
    out.push_back({{"id", token->id},
                   {"content", token->text},
                   {"single_word", token->single_word},
                   {"lstrip", token->left_strip},
                   {"rstrip", token->right_strip},
                   {"normalized", token->normalized},
                   {"special", token->special}});
  }
  return out;
}

// Put together by hand around the library's escaping: its ordered objects search all keys at every insertion.
std::string model_text(const BpeModel& model) {
  const auto quote = [](std::string_view text) { return Json(text).dump(); };
  const auto spelling = [&](TokenId id) -> const std::string& { return model.tokens[static_cast<size_t>(id)]; };
  std::string out = str(
      "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":", model.unknown ? quote(spelling(*model.unknown)) : "null",
      ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":", model.fuse_unknown ? "true" : "false",
      ",\"byte_fallback\":", model.byte_fallback ? "true" : "false",
      ",\"ignore_merges\":", model.ignore_merges ? "true" : "false", ",\"vocab\":{");
  bool first = true;
  for (size_t i = 0; i < model.tokens.size(); ++i) {
    // Of tokens spelled alike only one can be written, as only one is ever made of a text.
    if (model.find(model.tokens[i]) != static_cast<TokenId>(i)) continue;
    out += str(std::exchange(first, false) ? "\n" : ",\n", quote(model.tokens[i]), ":", i);
  }
  out += "},\"merges\":[";
  std::vector<MergeTable::Entry> merges = model.merges.entries();
  std::sort(merges.begin(), merges.end(), [&](const auto& a, const auto& b) {
    if (a.merge.rank != b.merge.rank) return a.merge.rank < b.merge.rank;
    if (a.merge.merged != b.merge.merged) return a.merge.merged < b.merge.merged;
    return spelling(a.left).size() > spelling(b.left).size();
  });
  first = true;
  for (const MergeTable::Entry& entry : merges) {
    out +=
        str(std::exchange(first, false) ? "\n[" : ",\n[", quote(spelling(entry.left)), ",", quote(spelling(entry.right)), "]");
  }
  return out + "]}";
}

std::string tokenizer_text(const TokenizerParts& parts) {
  return str("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":", added_tokens_json(parts).dump(),
             ",\n\"normalizer\":", normalizer_json(parts).dump(), ",\n\"pre_tokenizer\":", pre_tokenizer_json(parts).dump(),
             ",\n\"post_processor\":", post_processor_json(parts).dump(), ",\n\"decoder\":", decoder_json(parts).dump(),
             ",\n\"model\":", model_text(parts.model), "}\n");
}

std::string config_text(const TokenizerParts& parts, const io::GgufMetadata& metadata) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const auto name = [&](const char* key, std::optional<TokenId> id) {
    if (id && !parts.model.tokens[static_cast<size_t>(*id)].empty()) config[key] = parts.model.tokens[static_cast<size_t>(*id)];
  };
  name("bos_token", parts.bos);
  name("eos_token", parts.eos);
  name("unk_token", parts.model.unknown);
  if (metadata.find("tokenizer.ggml.padding_token_id")) {
    const uint64_t id = metadata.number("tokenizer.ggml.padding_token_id");
    if (id < parts.model.tokens.size()) name("pad_token", static_cast<TokenId>(id));
  }
  if (!parts.chat_template.empty()) config["chat_template"] = parts.chat_template;
  return config.dump(2) + "\n";
}

void write_text(const std::filesystem::path& path, const std::string& text) { io::write_file(path.string(), text_bytes(text)); }

}  // namespace

std::pair<std::string, std::string> tokenizer_files(const io::GgufMetadata& metadata) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(metadata);
  try {
    return {tokenizer_text(TokenizerAccess::parts(tokenizer)), config_text(TokenizerAccess::parts(tokenizer), metadata)};
  } catch (const Json::exception&) {
    fail(ErrorCode::kUnsupported, io::printable_path(metadata.name), ": the chat template is not UTF-8, which JSON needs");
  }
}

void write_tokenizer_directory(const io::GgufMetadata& metadata, const std::string& directory) {
  const auto [main, config] = tokenizer_files(metadata);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(ErrorCode::kIo, io::printable_path(directory), ": cannot be made: ", error.message());
  write_text(std::filesystem::path(directory) / "tokenizer.json", main);
  write_text(std::filesystem::path(directory) / "tokenizer_config.json", config);
}

}  // namespace kpd::text
