// text: a tokenizer as the keys tokenizer.ggml.* of a GGUF file: the way back of tokenizer_gguf.cc. What these keys cannot say
// is refused, not left out.
#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>

#include "io/text.h"
#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "kpd/text/tokenizer_export.h"
#include "text/pre_tokenizer_names.h"
#include "text/tokenizer_parts.h"

namespace kpd::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

// Values of tokenizer.ggml.token_type.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

bool is_literal_step(const NormalizerStep& step, std::string_view from, std::string_view to) {
  return step.kind == NormalizerStep::Kind::kReplace && step.pattern.is_literal() && step.pattern.source() == from &&
         step.text == to;
}

class GgufKeys {
 public:
  GgufKeys(const TokenizerParts& parts, std::string_view architecture, size_t n_vocabulary, io::GgufMetadata& metadata)
      : parts_(parts), model_(parts.model), architecture_(architecture), n_(n_vocabulary), metadata_(metadata) {}

  std::vector<std::string> write() {
    read_tokens();
    if (model_.byte_fallback) {
      write_sentence_piece();
    } else {
      write_byte_level();
    }
    put("tokens", tokens_);
    put("token_type", types_);
    write_special();
    write_chat();
    check();
    return std::move(notes_);
  }

 private:
  template <class T>
  void put(const std::string& key, T value) {
    metadata_.values.emplace_back("tokenizer.ggml." + key, io::GgufValue(std::move(value)));
  }
  template <class... Args>
  [[noreturn]] void refuse(const Args&... args) const {
    fail(ErrorCode::kUnsupported, parts_.name, ": ", args..., ", for which GGUF has no key");
  }

  const std::string& spelling(size_t id) const {
    static const std::string kNone;
    if (id < model_.tokens.size()) return model_.tokens[id];
    const size_t added = id - model_.tokens.size();
    return added < parts_.added_spelling.size() ? parts_.added_spelling[added] : kNone;
  }

  // One token a row of the model's embedding: llama.cpp knows the model's width by their number.
  void read_tokens() {
    const size_t held = model_.tokens.size() + parts_.added_spelling.size();
    if (held > n_) notes_.push_back(str(held - n_, " tokens beyond the model's vocabulary of ", n_, " are left out"));
    tokens_.resize(n_);
    types_.assign(n_, kNormal);
    for (size_t i = 0; i < n_; ++i) {
      tokens_[i] = spelling(i);
      if (!tokens_[i].empty()) continue;
      tokens_[i] = str("[PAD", i, "]");
      types_[i] = kUnused;
    }
    if (model_.byte_fallback) {
      for (const TokenId id : model_.byte_tokens) set_type(id, kByte);
      if (model_.unknown) set_type(*model_.unknown, kUnknown);
    }
    for (const AddedToken& token : parts_.added.tokens()) {
      if (types_.size() <= static_cast<size_t>(token.id)) continue;
      if (model_.unknown != token.id || !model_.byte_fallback) set_type(token.id, token.special ? kControl : kUserDefined);
      if (token.left_strip || token.single_word)
        refuse("the token '", io::printable(token.text), "' takes what stands beside it");
    }
  }

  void set_type(TokenId id, TokenType type) {
    if (id >= 0 && static_cast<size_t>(id) < types_.size()) types_[static_cast<size_t>(id)] = type;
  }

  std::vector<MergeTable::Entry> merges_by_rank() const {
    std::vector<MergeTable::Entry> merges = model_.merges.entries();
    std::sort(merges.begin(), merges.end(), [](const auto& a, const auto& b) { return a.merge.rank < b.merge.rank; });
    return merges;
  }

  void write_byte_level() {
    const PreTokenizerName* name = match_pre_tokenizer(parts_, usual_pre_tokenizers(architecture_));
    if (name == nullptr) refuse("the way in which this tokenizer cuts a text into words is none of the known models'");
    put("model", std::string("gpt2"));
    put("pre", std::string(name->name));
    const auto& steps = parts_.pre_tokenizer;
    const bool space = std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step.add_prefix_space; });
    if (space) put("add_space_prefix", true);
    std::vector<std::string> merges;
    for (const MergeTable::Entry& entry : merges_by_rank()) {
      const std::string &left = spelling(static_cast<size_t>(entry.left)), &right = spelling(static_cast<size_t>(entry.right));
      if (left.find(' ') != std::string::npos || right.find(' ') != std::string::npos)
        refuse("a merge of '", io::printable(left), "' and '", io::printable(right), "' has a space in it");
      merges.push_back(left + " " + right);
    }
    put("merges", std::move(merges));
  }

  // Whether texts get a space first.
  bool space_prefix() {
    const auto& normalizer = parts_.normalizer;
    size_t at = 0;
    bool prefix = false, spelled = false;
    if (at < normalizer.size() && normalizer[at].kind == NormalizerStep::Kind::kPrepend && normalizer[at].text == kSpaceMark) {
      prefix = true;
      ++at;
    }
    if (at < normalizer.size() && is_literal_step(normalizer[at], " ", kSpaceMark)) {
      spelled = true;
      ++at;
    }
    if (at != normalizer.size()) refuse("the normalizer does more than spell spaces");
    for (const PreTokenizerStep& step : parts_.pre_tokenizer) {
      if (step.kind == PreTokenizerStep::Kind::kMetaspace && step.replacement == kSpaceMark && !spelled) {
        prefix = step.prepend_scheme != PrependScheme::kNever;
        spelled = true;
        if (step.prepend_scheme == PrependScheme::kFirst)
          notes_.push_back(
              "a space is put before a text that follows a special token too; tokenizer.json has it at the start of the string "
              "only");
        if (step.split)
          notes_.push_back("words are not cut apart at spaces before they are merged; tokenizer.json asks for it");
        continue;
      }
      // Gemma's: there is no space left to cut at.
      if (step.kind == PreTokenizerStep::Kind::kSplit && step.pattern.is_literal() && step.pattern.source() == " " && spelled)
        continue;
      refuse("texts are cut into words before bytes are spelled");
    }
    if (!spelled) refuse("spaces are not spelled as U+2581");
    return prefix;
  }

  // SentencePiece's scores order the pieces as the merges that make them are ordered. Pieces whose merges are mixed are equal.
  void write_sentence_piece() {
    put("model", std::string("llama"));
    put("add_space_prefix", space_prefix());
    struct Range {
      size_t first, last;
      TokenId merged;
    };
    std::vector<Range> ranges;
    std::unordered_map<TokenId, size_t> at;
    size_t order = 0;
    for (const MergeTable::Entry& entry : merges_by_rank()) {
      const auto [it, fresh] = at.emplace(entry.merge.merged, ranges.size());
      if (fresh) ranges.push_back({order, order, entry.merge.merged});
      ranges[it->second].last = order++;
    }
    std::vector<double> scores(n_, 0.0);
    for (size_t i = 0; i < n_; ++i) {
      if (types_[i] == kNormal || types_[i] == kUserDefined) scores[i] = -static_cast<double>(ranges.size() + 1);
    }
    size_t end = 0, rank = 0;
    for (const Range& range : ranges) {
      if (range.first > end) ++rank;
      end = std::max(end, range.last);
      if (static_cast<size_t>(range.merged) < n_) scores[static_cast<size_t>(range.merged)] = -static_cast<double>(rank);
    }
    put("scores", std::move(scores));
  }

  void put_id(const char* key, std::optional<TokenId> id) {
    if (id && static_cast<size_t>(*id) < n_) put(key, static_cast<uint64_t>(*id));
  }

  std::optional<TokenId> id_of(std::string_view text) const {
    for (const AddedToken& token : parts_.added.tokens()) {
      if (token.text == text) return token.id;
    }
    return model_.find(text);
  }

  void write_special() {
    put_id("bos_token_id", parts_.bos);
    put_id("eos_token_id", parts_.eos);
    if (model_.unknown) put_id("unknown_token_id", model_.unknown);
    constexpr std::pair<const char*, const char*> kTokens[] = {{"unk_token", "unknown_token_id"},
                                                               {"sep_token", "seperator_token_id"},
                                                               {"pad_token", "padding_token_id"},
                                                               {"cls_token", "cls_token_id"},
                                                               {"mask_token", "mask_token_id"}};
    for (const auto& [name, key] : kTokens) {
      for (const auto& [given, text] : parts_.chat_tokens) {
        if (given == name && !metadata_.find(str("tokenizer.ggml.", key))) put_id(key, id_of(text));
      }
    }
    const auto is_one = [](const std::vector<TokenId>& ids, std::optional<TokenId> id) {
      return id && ids.size() == 1 && ids[0] == *id;
    };
    const bool begins = is_one(parts_.prefix, parts_.bos), ends = is_one(parts_.suffix, parts_.eos);
    if (!begins && !parts_.prefix.empty()) refuse("a text begins with other tokens than BOS");
    if (!ends && !parts_.suffix.empty()) refuse("a text ends with other tokens than EOS");
    put("add_bos_token", begins);
    put("add_eos_token", ends);
  }

  void write_chat() {
    const auto put_text = [&](const std::string& key, const std::string& text) {
      metadata_.values.emplace_back("tokenizer." + key, io::GgufValue(text));
    };
    if (!parts_.chat_template.empty()) put_text("chat_template", parts_.chat_template);
    if (parts_.named_templates.empty()) return;
    std::vector<std::string> names;
    for (const NamedTemplate& one : parts_.named_templates) {
      names.push_back(one.name);
      put_text("chat_template." + one.name, one.source);
    }
    metadata_.values.emplace_back("tokenizer.chat_templates", io::GgufValue(std::move(names)));
  }

  // What a reader makes of these keys merges as this tokenizer does, and ends its turns with the same tokens.
  void check() {
    const Tokenizer back = Tokenizer::from_gguf(metadata_);
    const TokenizerParts& read = TokenizerAccess::parts(back);
    size_t kept = 0;
    for (const MergeTable::Entry& entry : model_.merges.entries()) {
      const auto id = static_cast<size_t>(entry.merge.merged);
      if (id >= n_ || static_cast<size_t>(entry.left) >= n_ || static_cast<size_t>(entry.right) >= n_) continue;
      const Merge* merge = read.model.merges.find(entry.left, entry.right);
      if (merge == nullptr || merge->merged != entry.merge.merged)
        refuse("'", io::printable(spelling(static_cast<size_t>(entry.left))), "' and '",
               io::printable(spelling(static_cast<size_t>(entry.right))), "' merge");
      ++kept;
    }
    if (read.model.merges.size() != kept)
      refuse("of pieces that join to a third only some merge: ", kept, " of ", read.model.merges.size());
    for (const AddedToken& token : parts_.added.tokens()) {
      const auto& tokens = read.added.tokens();
      const auto same = std::find_if(tokens.begin(), tokens.end(), [&](const auto& t) { return t.id == token.id; });
      if (same != tokens.end() && same->right_strip == token.right_strip) continue;
      if (static_cast<size_t>(token.id) >= n_) continue;
      refuse("the token '", io::printable(token.text), "' takes the spaces behind it, or none");
    }
    std::vector<TokenId> more;
    for (const TokenId id : parts_.end_of_turn) {
      if (static_cast<size_t>(id) < n_ &&
          std::find(read.end_of_turn.begin(), read.end_of_turn.end(), id) == read.end_of_turn.end())
        more.push_back(id);
    }
    if (!more.empty()) put_id("eot_token_id", more[0]);
    if (more.size() > 1) notes_.push_back(str(more.size() - 1, " more tokens end an answer, for which GGUF has no key"));
  }

  const TokenizerParts& parts_;
  const BpeModel& model_;
  std::string_view architecture_;
  size_t n_;
  io::GgufMetadata& metadata_;
  std::vector<std::string> tokens_, notes_;
  std::vector<int64_t> types_;
};

}  // namespace

std::vector<std::string> add_gguf_tokenizer(const Tokenizer& tokenizer, std::string_view architecture, size_t n_vocabulary,
                                            io::GgufMetadata& metadata) {
  return GgufKeys(TokenizerAccess::parts(tokenizer), architecture, n_vocabulary, metadata).write();
}

}  // namespace kpd::text
