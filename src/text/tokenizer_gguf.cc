// text: a tokenizer from a GGUF file's metadata (the keys tokenizer.ggml.*): the vocabulary and its merges or scores are in the
// file, the way a text is cut into words is only named there.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>

#include "io/text.h"
#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "text/pre_tokenizer_names.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

constexpr size_t kMaxTokens = 1 << 22;
// A piece is searched for merges at all its cuts.
constexpr size_t kMaxPieceBytes = 1024;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

// Values of tokenizer.ggml.token_type.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Spellings that only special tokens have, in the files of the known models.
constexpr std::string_view kSpecialForms[][2] = {{"<|", "|>"}, {"<\uff5c", "\uff5c>"}};
constexpr std::string_view kSpecialSpellings[] = {"<start_of_turn>", "<end_of_turn>", "<end_of_utterance>"};

bool looks_special(std::string_view token) {
  for (const auto& [open, close] : kSpecialForms) {
    if (token.size() > open.size() + close.size() && token.starts_with(open) && token.ends_with(close)) return true;
  }
  return std::find(std::begin(kSpecialSpellings), std::end(kSpecialSpellings), token) != std::end(kSpecialSpellings);
}

class GgufTokenizer {
 public:
  explicit GgufTokenizer(const io::GgufMetadata& metadata)
      : metadata_(metadata), file_(io::printable_path(metadata.name)), parts_(std::make_unique<TokenizerParts>()) {
    parts_->name = file_;
  }

  Tokenizer read() {
    const std::string& model = metadata_.text("tokenizer.ggml.model");
    if (model != "gpt2" && model != "llama") {
      fail(ErrorCode::kUnsupported, file_, ": tokenizer.ggml.model is '", io::printable(model),
           "', expected 'gpt2' (byte-level BPE) or 'llama' (SentencePiece BPE)");
    }
    if (metadata_.find("general.architecture")) architecture_ = metadata_.text("general.architecture");
    read_tokens();
    if (model == "gpt2") {
      read_byte_level();
    } else {
      read_sentence_piece();
    }
    read_special();
    return TokenizerAccess::make(std::move(parts_));
  }

 private:
  bool flag(std::string_view key, bool absent) const { return metadata_.find(key) ? metadata_.boolean(key) : absent; }

  std::optional<TokenId> id(const std::string& key) const {
    if (!metadata_.find(key)) return std::nullopt;
    const uint64_t value = metadata_.number(key);
    if (value >= parts_->model.tokens.size()) {
      fail(ErrorCode::kCorruptData, file_, ": ", key, " is ", value, ", expected one of ", parts_->model.tokens.size(),
           " tokens");
    }
    return static_cast<TokenId>(value);
  }

  void read_tokens() {
    std::vector<std::string> tokens = metadata_.texts("tokenizer.ggml.tokens");
    if (tokens.size() > kMaxTokens) {
      fail(ErrorCode::kLimitExceeded, file_, ": ", tokens.size(), " tokens, the limit is ", kMaxTokens);
    }
    types_.assign(tokens.size(), kNormal);
    if (metadata_.find("tokenizer.ggml.token_type")) {
      types_ = metadata_.integers("tokenizer.ggml.token_type");
    } else {
      note("tokenizer.ggml.token_type is missing; special tokens are known by their spelling alone");
    }
    if (types_.size() != tokens.size()) {
      fail(ErrorCode::kCorruptData, file_, ": tokenizer.ggml.token_type has ", types_.size(), " entries, expected ",
           tokens.size(), ", one a token");
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!is_utf8(tokens[i])) fail(ErrorCode::kCorruptData, file_, ": token ", i, " is not UTF-8, expected text");
      // Converters fill the vocabulary up to the width of the model's head: such tokens have no text.
      if (types_[i] == kUnused && tokens[i] == str("[PAD", i, "]")) tokens[i].clear();
    }
    parts_->model.tokens = std::move(tokens);
    parts_->model.index();
  }

  void note(std::string text) { parts_->notes.push_back(std::move(text)); }

  // Files of before the key, or with "default" there, are GPT-2's or like it, unless their model is known to be not.
  const PreTokenizerName& pre_tokenizer() {
    const std::string name = metadata_.find("tokenizer.ggml.pre") ? metadata_.text("tokenizer.ggml.pre") : "";
    if (!name.empty() && name != "default") {
      if (const PreTokenizerName* found = find_pre_tokenizer(name)) return *found;
      fail(ErrorCode::kUnsupported, file_, ": tokenizer.ggml.pre is '", io::printable(name), "', expected one of ",
           pre_tokenizer_names());
    }
    const PreTokenizerName& gpt2 = *find_pre_tokenizer("default");
    const bool llama3 = architecture_ == "llama" && parts_->model.find("<|begin_of_text|>");
    const auto usual = llama3 ? std::vector<std::string_view>{"llama-bpe"} : usual_pre_tokenizers(architecture_);
    const PreTokenizerName* found = usual.size() == 1 ? find_pre_tokenizer(usual[0]) : nullptr;
    if (found && found->steps.data() == gpt2.steps.data()) return *found;
    const std::string_view what = name.empty() ? "missing" : "'default'";
    if (!usual.empty()) {
      fail(ErrorCode::kCorruptData, file_, ": tokenizer.ggml.pre is ", what, ", expected '", usual[0], "'",
           usual.size() > 1 ? str(" or '", usual[1], "'") : std::string(), ", as files of '", io::printable(architecture_),
           "' have it; without it texts would be cut into the wrong tokens");
    }
    note(str("tokenizer.ggml.pre is ", what, "; texts are cut into words as GPT-2's, which may not be this model's way"));
    return gpt2;
  }

  void read_byte_level() {
    const PreTokenizerName& pre = pre_tokenizer();
    if (pre.rules & kNormalised) parts_->normalizer.push_back({NormalizerStep::Kind::kNfc, {}, {}});
    parts_->model.ignore_merges = (pre.rules & kIgnoreMerges) != 0;
    adds_bos_ = (pre.rules & kAddsBos) != 0;
    parts_->pre_tokenizer = pre_tokenizer_steps(pre, flag("tokenizer.ggml.add_space_prefix", false), file_);
    parts_->has_decoder = true;
    parts_->decoder.push_back({.kind = DecoderStep::Kind::kByteLevel});
    read_merges();
    std::vector<bool> made(types_.size());
    for (const MergeTable::Entry& entry : parts_->model.merges.entries()) made[static_cast<size_t>(entry.merge.merged)] = true;
    find_untyped_specials(made);
  }

  // Special tokens that are typed as normal would be cut into pieces, and the text that they end would go on. One that merges
  // make is a word.
  void find_untyped_specials(const std::vector<bool>& made) {
    std::string names;
    size_t count = 0;
    for (size_t i = 0; i < types_.size(); ++i) {
      const std::string& token = parts_->model.tokens[i];
      if (types_[i] != kNormal || made[i] || !looks_special(token)) continue;
      types_[i] = kControl;
      constexpr size_t kShown = 4;
      if (++count <= kShown) names += str(count > 1 ? ", " : "", "'", io::printable(token), "'");
    }
    if (count == 0) return;
    note(str("tokenizer.ggml.token_type has ", count, " special token", count == 1 ? "" : "s",
             " as normal text, here taken as special: ", names, count > 4 ? ", ..." : ""));
  }

  void read_merges() {
    const std::vector<std::string>& merges = metadata_.texts("tokenizer.ggml.merges");
    if (merges.size() > kMaxTokens) {
      fail(ErrorCode::kLimitExceeded, file_, ": ", merges.size(), " merges, the limit is ", kMaxTokens);
    }
    BpeModel& model = parts_->model;
    model.merges.reserve(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      // Byte-level spellings hold no space, so the first one is the cut; it may not be the first byte.
      const size_t cut = merges[i].find(' ', 1);
      std::optional<TokenId> left, right, merged;
      if (cut != std::string::npos) {
        const std::string_view text = merges[i];
        left = model.find(text.substr(0, cut));
        right = model.find(text.substr(cut + 1));
        merged = model.find(str(text.substr(0, cut), text.substr(cut + 1)));
      }
      if (!left || !right || !merged) {
        fail(ErrorCode::kCorruptData, file_, ": tokenizer.ggml.merges: entry ", i, " is '", io::printable(merges[i]),
             "', expected two tokens that join to a third, with a space between them");
      }
      model.merges.insert(*left, *right, {static_cast<uint32_t>(i), *merged});
    }
  }

  void read_sentence_piece() {
    BpeModel& model = parts_->model;
    model.byte_fallback = true;
    model.fuse_unknown = true;
    const auto unknown = std::find(types_.begin(), types_.end(), int64_t{kUnknown});
    if (unknown != types_.end()) model.unknown = static_cast<TokenId>(unknown - types_.begin());
    adds_bos_ = true;
    // No Gemma has it; her first files say nothing.
    space_prefix_ = flag("tokenizer.ggml.add_space_prefix", !architecture_.starts_with("gemma"));
    if (space_prefix_) parts_->normalizer.push_back({NormalizerStep::Kind::kPrepend, {}, std::string(kSpaceMark)});
    parts_->normalizer.push_back({NormalizerStep::Kind::kReplace, Pattern::literal(" "), std::string(kSpaceMark)});
    parts_->has_decoder = true;
    parts_->decoder.push_back({.kind = DecoderStep::Kind::kReplace, .pattern = Pattern::literal(kSpaceMark), .text = " "});
    parts_->decoder.push_back({.kind = DecoderStep::Kind::kByteFallback});
    parts_->decoder.push_back({.kind = DecoderStep::Kind::kFuse});
    if (space_prefix_) parts_->decoder.push_back({.kind = DecoderStep::Kind::kStrip, .text = " ", .start = 1});
    find_untyped_specials(std::vector<bool>(types_.size()));
    merges_from_scores();
  }

  bool is_text(TokenId token) const {
    const int64_t type = types_[static_cast<size_t>(token)];
    return type == kNormal || type == kUserDefined || type == kUnused;
  }

  // SentencePiece merges any two pieces that join to a third, that of the highest score first and of equal scores the leftmost:
  // as a merge table, all cuts of a piece with the rank of its score.
  void merges_from_scores() {
    BpeModel& model = parts_->model;
    const std::vector<double> scores = metadata_.reals("tokenizer.ggml.scores");
    if (scores.size() != model.tokens.size()) {
      fail(ErrorCode::kCorruptData, file_, ": tokenizer.ggml.scores has ", scores.size(), " entries, expected ",
           model.tokens.size(), ", one a token");
    }
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (const double score : scores) {
      if (std::isnan(score)) fail(ErrorCode::kCorruptData, file_, ": tokenizer.ggml.scores holds NaN, expected numbers");
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && scores[order[i]] < scores[order[i - 1]]) ++rank;
      add_cuts(static_cast<TokenId>(order[i]), rank);
    }
  }

  void add_cuts(TokenId token, uint32_t rank) {
    BpeModel& model = parts_->model;
    const std::string_view piece = model.tokens[static_cast<size_t>(token)];
    if (!is_text(token) || model.find(piece) != token) return;
    if (piece.size() > kMaxPieceBytes) {
      fail(ErrorCode::kLimitExceeded, file_, ": token ", token, " has ", piece.size(), " bytes, the limit is ", kMaxPieceBytes);
    }
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if ((static_cast<unsigned char>(piece[cut]) & 0xC0) == 0x80) continue;
      const auto left = model.find(piece.substr(0, cut));
      if (!left || !is_text(*left)) continue;
      const auto right = model.find(piece.substr(cut));
      if (right && is_text(*right)) model.merges.insert(*left, *right, {rank, token});
    }
  }

  // Phi-3's tokenizer.json says it of each token, a GGUF file of none; llama.cpp knows it by the model's name. The other models
  // with SentencePiece vocabularies have no such tokens.
  bool takes_spaces_after(const std::string& token, bool special) const {
    constexpr std::string_view kDoNot[] = {"<unk>", "<s>", "<|endoftext|>"};
    if (architecture_ != "phi3" || std::find(std::begin(kDoNot), std::end(kDoNot), token) != std::end(kDoNot)) return false;
    return special || token == "</s>";
  }

  // BOS or EOS. SentencePiece's vocabularies spell them alike; files without the key are of those that llama.cpp's default
  // fits.
  std::optional<TokenId> edge_token(const std::string& key, std::initializer_list<std::string_view> spellings) {
    if (metadata_.find(key) || !parts_->model.byte_fallback) return id(key);
    for (const std::string_view spelling : spellings) {
      const auto found = parts_->model.find(spelling);
      if (!found || types_[static_cast<size_t>(*found)] != kControl) continue;
      note(str(key, " is missing; taken to be ", *found, ", '", spelling, "'"));
      return found;
    }
    return std::nullopt;
  }

  void read_special() {
    const BpeModel& model = parts_->model;
    const bool sentence_piece = model.byte_fallback;
    StepBudget budget(file_, 0);
    std::vector<AddedToken> added;
    std::vector<std::string> searched;
    for (const int64_t type : {int64_t{kControl}, int64_t{kUserDefined}}) {
      for (size_t i = 0; i < types_.size(); ++i) {
        // An unknown token is found by its spelling too, as Hugging Face's converters have it.
        const bool special = types_[i] == kControl || (types_[i] == kUnknown && sentence_piece);
        if (special != (type == kControl) || (!special && types_[i] != kUserDefined)) continue;
        // SentencePiece looks for a user's tokens where spaces are already spelled. Where texts get a first space too, such
        // tokens are most often a fine-tune's own, cut out before that, as llama.cpp and Hugging Face do it.
        added.push_back({.text = model.tokens[i],
                         .id = static_cast<TokenId>(i),
                         .special = special,
                         .right_strip = sentence_piece && takes_spaces_after(model.tokens[i], special),
                         .normalized = !special && sentence_piece && !space_prefix_});
        // Converters write spaces in them as they are, older ones as the text has them by then.
        budget.add(model.tokens[i].size());
        searched.push_back(added.back().normalized ? normalize(parts_->normalizer, model.tokens[i], budget) : model.tokens[i]);
      }
    }
    parts_->added.set(std::move(added), searched);
    parts_->bos = edge_token("tokenizer.ggml.bos_token_id", {"<s>", "<bos>"});
    parts_->eos = edge_token("tokenizer.ggml.eos_token_id", {"</s>", "<eos>"});
    const auto turn_end = id("tokenizer.ggml.eot_token_id");
    if (flag("tokenizer.ggml.add_bos_token", adds_bos_)) {
      if (parts_->bos) {
        parts_->prefix.push_back(*parts_->bos);
      } else {
        note("tokenizer.ggml.bos_token_id is missing; texts begin without the token that this tokenizer puts first");
      }
    }
    if (flag("tokenizer.ggml.add_eos_token", false) && parts_->eos) parts_->suffix.push_back(*parts_->eos);
    read_chat();
    parts_->set_end_of_turn(turn_end ? std::vector<TokenId>{*turn_end} : std::vector<TokenId>{});
    if (parts_->end_of_turn.empty()) note("tokenizer.ggml.eos_token_id is missing; no token ends a text");
  }

  // The template, and the tokens whose texts it may ask for.
  void read_chat() {
    if (metadata_.find("tokenizer.chat_template")) parts_->chat_template = metadata_.text("tokenizer.chat_template");
    if (metadata_.find("tokenizer.chat_templates")) {
      for (const std::string& name : metadata_.texts("tokenizer.chat_templates"))
        parts_->named_templates.push_back({name, metadata_.text("tokenizer.chat_template." + name)});
    }
    constexpr std::pair<const char*, const char*> kTokens[] = {
        {"bos_token", "bos_token_id"},       {"eos_token", "eos_token_id"},     {"unk_token", "unknown_token_id"},
        {"sep_token", "seperator_token_id"}, {"pad_token", "padding_token_id"}, {"cls_token", "cls_token_id"},
        {"mask_token", "mask_token_id"}};
    for (const auto& [name, key] : kTokens) {
      if (const auto token = id(str("tokenizer.ggml.", key)))
        parts_->chat_tokens.emplace_back(name, parts_->model.tokens[static_cast<size_t>(*token)]);
    }
  }

  const io::GgufMetadata& metadata_;
  std::string file_;
  std::unique_ptr<TokenizerParts> parts_;
  std::vector<int64_t> types_;
  std::string architecture_;
  bool adds_bos_ = false, space_prefix_ = false;
};

}  // namespace

Tokenizer Tokenizer::from_gguf(const io::GgufMetadata& metadata) { return GgufTokenizer(metadata).read(); }

}  // namespace kpd::text
