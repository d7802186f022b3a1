// text: a tokenizer from tokenizer.json, with what tokenizer_config.json and generation_config.json add: which tokens begin and
// end a text, and the chat template.
#include "text/tokenizer_json.h"

#include <algorithm>
#include <filesystem>

#include "io/text.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

constexpr uint64_t kMaxTokenId = (1 << 22) - 1;
// Vocabularies have gaps; a few bytes of JSON may not ask for the table of millions of tokens.
constexpr uint64_t kMaxSparseId = 1 << 16, kMaxIdsPerToken = 4;

std::string kind_of(const io::Json& value) {
  if (value.is_string()) return str("'", io::printable(value.get_ref<const std::string&>()), "'");
  if (value.is_null()) return "absent";
  if (value.is_number()) return value.dump();
  return str("an ", value.type_name());
}

// The whole model part.
class ModelReader {
 public:
  ModelReader(const JsonPart& part, BpeModel& model) : part_(part), model_(model) {}

  void read() {
    const JsonPart type = part_.member("type");
    // Files of before this key hold a BPE model if they hold merges.
    if (type.is_null() ? part_.member("merges").is_null() : type.text() != "BPE") {
      type.unsupported("BPE");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!part_.member(key).text_or("").empty()) part_.member(key).unsupported("none");
    }
    const JsonPart dropout = part_.member("dropout");
    if (!dropout.is_null() && !(dropout.value().is_number() && dropout.value().get<double>() == 0)) dropout.unsupported("null");
    read_vocabulary();
    model_.fuse_unknown = part_.member("fuse_unk").boolean_or(false);
    model_.byte_fallback = part_.member("byte_fallback").boolean_or(false);
    model_.ignore_merges = part_.member("ignore_merges").boolean_or(false);
    model_.index();
    const JsonPart unknown = part_.member("unk_token");
    if (!unknown.is_null()) {
      model_.unknown = model_.find(unknown.text());
      if (!model_.unknown) unknown.corrupt("a token of model.vocab");
    }
    read_merges();
  }

 private:
  void read_vocabulary() {
    const JsonPart vocabulary = part_.member("vocab");
    if (!vocabulary.value().is_object()) vocabulary.corrupt("an object of tokens and ids");
    uint64_t count = 0;
    for (const auto& [token, id] : vocabulary.value().items()) count = std::max(count, id_of(vocabulary, token, id) + 1);
    model_.tokens.resize(count);
    for (const auto& [token, id] : vocabulary.value().items()) {
      std::string& place = model_.tokens[id.get<uint64_t>()];
      if (!place.empty()) {
        fail(ErrorCode::kCorruptData, vocabulary.where(), ": tokens '", io::printable(place), "' and '", io::printable(token),
             "' have both the id ", id.get<uint64_t>(), ", expected one token an id");
      }
      place = token;
    }
  }

  static uint64_t id_of(const JsonPart& vocabulary, const std::string& token, const io::Json& id) {
    const uint64_t limit = std::min(kMaxTokenId, std::max(kMaxSparseId, kMaxIdsPerToken * vocabulary.size()));
    if (!id.is_number_unsigned() || id.get<uint64_t>() > limit) {
      fail(id.is_number_unsigned() ? ErrorCode::kLimitExceeded : ErrorCode::kCorruptData, vocabulary.where(), ": token '",
           io::printable(token), "' has the id ", io::printable(id.dump()), ", expected an integer from 0 to ", limit);
    }
    return id.get<uint64_t>();
  }

  void read_merges() {
    const JsonPart merges = part_.member("merges");
    merges.expect_array();
    model_.merges.reserve(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const io::Json& merge = merges.value()[i];
      std::string_view left, right;
      if (merge.is_string()) {
        const std::string_view text = merge.get_ref<const std::string&>();
        const size_t cut = text.find(' ');
        if (cut == text.npos || text.find(' ', cut + 1) != text.npos) merges.item(i).corrupt("two tokens with a space between");
        left = text.substr(0, cut);
        right = text.substr(cut + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get_ref<const std::string&>();
        right = merge[1].get_ref<const std::string&>();
      } else {
        merges.item(i).corrupt("two tokens");
      }
      const auto a = model_.find(left), b = model_.find(right), joined = model_.find(str(left, right));
      if (!a || !b || !joined) {
        fail(ErrorCode::kCorruptData, merges.item(i).where(), ": '",
             io::printable(!a   ? left
                           : !b ? right
                                : str(left, right)),
             "' is no token of model.vocab, expected both parts and the whole there");
      }
      model_.merges.insert(*a, *b, {static_cast<uint32_t>(i), *joined});
    }
  }

  const JsonPart& part_;
  BpeModel& model_;
};

AddedToken read_added_token(const JsonPart& item) {
  AddedToken token{};
  token.text = item.member("content").text();
  token.special = item.member("special").boolean_or(false);
  token.single_word = item.member("single_word").boolean_or(false);
  token.left_strip = item.member("lstrip").boolean_or(false);
  token.right_strip = item.member("rstrip").boolean_or(false);
  token.normalized = item.member("normalized").boolean_or(!token.special);
  return token;
}

// Gives the ids of added tokens: that of the vocabulary; for others the one after all, in the order of the list. Hugging Face
// does not follow the list's own ids where they differ; such a list is refused, as one of the two must be wrong.
class AddedIds {
 public:
  explicit AddedIds(TokenizerParts& parts) : parts_(parts), vocabulary_size_(parts.model.ids.size()) {}

  TokenId id_of(const AddedToken& token, const JsonPart& item) {
    uint64_t id = 0;
    const auto known = parts_.model.find(token.text);
    const auto again = new_ids_.find(token.text);
    if (known) {
      id = static_cast<uint64_t>(*known);
    } else if (again != new_ids_.end()) {
      id = again->second;
    } else {
      id = std::max(vocabulary_size_, end_);
    }
    if (const uint64_t listed = item.member("id").number(); listed != id && (known || again == new_ids_.end())) {
      fail(ErrorCode::kCorruptData, item.where(), ": token '", io::printable(token.text), "' has the id ", listed,
           ", expected ", id, ", as the vocabulary and the order of the list give it");
    }
    if (!known && again == new_ids_.end()) place(id, token.text, item);
    end_ = std::max(end_, id + 1);
    return static_cast<TokenId>(id);
  }

 private:
  void place(uint64_t id, const std::string& text, const JsonPart& item) {
    new_ids_.emplace(text, id);
    std::vector<std::string>& tokens = parts_.model.tokens;
    std::vector<std::string>& added = parts_.added_spelling;
    if (id > kMaxTokenId) fail(ErrorCode::kLimitExceeded, item.where(), ": more than ", kMaxTokenId, " tokens");
    if (id >= tokens.size() && id - tokens.size() >= added.size()) added.resize(id - tokens.size() + 1);
    std::string& spelling = id < tokens.size() ? tokens[id] : added[id - tokens.size()];
    // Possible where the vocabulary's ids have gaps: Hugging Face counts its tokens.
    if (!spelling.empty()) {
      fail(ErrorCode::kCorruptData, item.where(), ": token '", io::printable(text), "' has the id ", id, " of '",
           io::printable(spelling), "', expected one token an id");
    }
    spelling = text;
  }

  TokenizerParts& parts_;
  uint64_t vocabulary_size_;
  uint64_t end_ = 0;  // after the greatest id so far
  std::unordered_map<std::string, uint64_t> new_ids_;
};

void read_added(const JsonPart& list, TokenizerParts& parts) {
  if (list.is_null()) return;
  list.expect_array();
  std::vector<AddedToken> tokens;
  std::unordered_map<TokenId, size_t> listed;
  AddedIds ids(parts);
  for (size_t i = 0; i < list.size(); ++i) {
    AddedToken token = read_added_token(list.item(i));
    if (token.text.empty()) continue;
    token.id = ids.id_of(token, list.item(i));
    // Of a token that is listed twice the last entry counts, as in Hugging Face; special it is if either says so.
    const auto [at, is_new] = listed.emplace(token.id, tokens.size());
    if (is_new) {
      tokens.push_back(std::move(token));
    } else {
      token.special = token.special || tokens[at->second].special;
      tokens[at->second] = std::move(token);
    }
  }
  // Special ones first: of two that are spelled alike when normalized the first is found.
  std::stable_partition(tokens.begin(), tokens.end(), [](const AddedToken& t) { return t.special; });
  StepBudget budget(parts.name, 0);
  for (const AddedToken& t : tokens) budget.add(t.text.size());
  std::vector<std::string> searched;
  for (const AddedToken& t : tokens) searched.push_back(t.normalized ? normalize(parts.normalizer, t.text, budget) : t.text);
  parts.added.set(std::move(tokens), searched);
}

std::optional<TokenId> find_token(const TokenizerParts& parts, std::string_view text) {
  for (const AddedToken& token : parts.added.tokens()) {
    if (token.text == text) return token.id;
  }
  return parts.model.find(text);
}

// "<s>", {"content": "<s>", ...} or null; a token that there is not is none, as files of several models share their settings.
std::optional<TokenId> named_token(const JsonPart& part, const TokenizerParts& parts) {
  if (part.is_null()) return std::nullopt;
  return find_token(parts, part.value().is_object() ? part.member("content").text() : part.text());
}

void read_config(const JsonPart& config, TokenizerParts& parts) {
  parts.bos = named_token(config.member("bos_token"), parts);
  parts.eos = named_token(config.member("eos_token"), parts);
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const JsonPart token = config.member(name);
    if (token.is_null()) continue;
    parts.chat_tokens.emplace_back(name, token.value().is_object() ? token.member("content").text() : token.text());
  }
  const JsonPart chat = config.member("chat_template");
  if (chat.is_null()) return;
  if (!chat.value().is_array()) {
    parts.chat_template = chat.text();
    return;
  }
  // Several, by name.
  for (size_t i = 0; i < chat.size(); ++i) {
    const std::string &name = chat.item(i).member("name").text(), &source = chat.item(i).member("template").text();
    if (name == "default") {
      parts.chat_template = source;
    } else {
      parts.named_templates.push_back({name, source});
    }
  }
}

std::vector<TokenId> read_generation(const JsonPart& config, const TokenizerParts& parts) {
  const JsonPart eos = config.member("eos_token_id");
  std::vector<TokenId> ids;
  if (eos.is_null()) return ids;
  const size_t count = eos.value().is_array() ? eos.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    const JsonPart one = eos.value().is_array() ? eos.item(i) : eos;
    // A model's head may be wider than its vocabulary; an id out there ends nothing.
    if (one.number() < parts.model.tokens.size() + parts.added_spelling.size())
      ids.push_back(static_cast<TokenId>(one.number()));
  }
  return ids;
}

std::unique_ptr<TokenizerParts> read_parts(std::string_view tokenizer, std::string_view tokenizer_config, std::string_view name,
                                           std::string_view generation_config) {
  const std::string file = io::printable_path(name);
  auto parts = std::make_unique<TokenizerParts>();
  parts->name = file;
  {
    const io::Json json = io::parse_json(tokenizer, file);
    const JsonPart top(json, file + ": ");
    const JsonPart model = top.member("model");
    ModelReader(model, parts->model).read();
    read_normalizer(top.member("normalizer"), parts->normalizer);
    read_pre_tokenizer(top.member("pre_tokenizer"), parts->pre_tokenizer);
    read_added(top.member("added_tokens"), *parts);
    read_post_processor(top.member("post_processor"), *parts);
    read_decoder(top.member("decoder"), *parts);
  }
  // The directory that errors name beside the file at fault.
  const std::string folder = file.substr(0, file.find_last_of('/') + 1);
  if (!tokenizer_config.empty()) {
    const std::string where = folder + "tokenizer_config.json";
    read_config(JsonPart(io::parse_json(tokenizer_config, where), where + ": "), *parts);
  }
  std::vector<TokenId> ends;
  if (!generation_config.empty()) {
    const std::string where = folder + "generation_config.json";
    ends = read_generation(JsonPart(io::parse_json(generation_config, where), where + ": "), *parts);
  }
  parts->set_end_of_turn(std::move(ends));
  return parts;
}

}  // namespace

JsonPart JsonPart::member(const char* key) const {
  static const io::Json kNull;
  if (!value_->is_object()) corrupt("an object");
  const auto found = value_->find(key);
  return {found == value_->end() ? kNull : *found, str(where_, where_.ends_with(' ') ? "" : ".", io::printable(key))};
}

JsonPart JsonPart::item(size_t index) const { return {(*value_)[index], str(where_, "[", index, "]")}; }

const std::string& JsonPart::text() const {
  if (!value_->is_string()) corrupt("text");
  return value_->get_ref<const std::string&>();
}

std::string JsonPart::text_or(std::string_view absent) const { return is_null() ? std::string(absent) : text(); }

bool JsonPart::boolean_or(bool absent) const {
  if (is_null()) return absent;
  if (!value_->is_boolean()) corrupt("true or false");
  return value_->get<bool>();
}

uint64_t JsonPart::number() const {
  if (!value_->is_number_unsigned()) corrupt("an integer");
  return value_->get<uint64_t>();
}

void JsonPart::expect_array() const {
  if (!value_->is_array()) corrupt("an array");
}

std::string JsonPart::one_char() const {
  const std::string& t = text();
  if (t.empty() || char_at(t, 0).bytes != t.size()) corrupt("one character");
  return t;
}

void JsonPart::corrupt(const std::string& expected) const {
  fail(ErrorCode::kCorruptData, where_, " is ", kind_of(*value_), ", expected ", expected);
}

void JsonPart::unsupported(const std::string& expected) const {
  fail(ErrorCode::kUnsupported, where_, " is ", kind_of(*value_), ", supported is ", expected);
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer, std::string_view tokenizer_config, std::string_view name,
                               std::string_view generation_config) {
  return Tokenizer(read_parts(tokenizer, tokenizer_config, name, generation_config));
}

Tokenizer Tokenizer::from_directory(const std::string& directory) {
  const std::filesystem::path folder(directory);
  const auto path = [&](const char* file) { return (folder / file).string(); };
  const auto optional = [&](const char* file) {
    std::error_code ignored;
    return std::filesystem::exists(folder / file, ignored) ? io::map_file(path(file)) : io::MappedFile();
  };
  const io::MappedFile tokenizer = io::map_file(path("tokenizer.json"));
  const io::MappedFile config = optional("tokenizer_config.json"), generation = optional("generation_config.json");
  const io::MappedFile chat = optional("chat_template.jinja");
  auto parts = read_parts(tokenizer.text(), config.text(), path("tokenizer.json"), generation.text());
  if (!chat.bytes().empty()) parts->chat_template = chat.text();
  return Tokenizer(std::move(parts));
}

}  // namespace kpd::text
