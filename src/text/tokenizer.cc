// text: a tokenizer's public face: encoding, and what its vocabulary holds.
#include "kpd/text/tokenizer.h"

#include <algorithm>

#include "kpd/base/error.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

// Tokens that end a turn in the chat formats known here; a model's files often name one of several.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",      "<|end|>",
                                          "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eot|>"};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

void TokenizerParts::set_end_of_turn(std::vector<TokenId> found) {
  if (eos) found.push_back(*eos);
  for (const AddedToken& token : added.tokens()) {
    if (std::find(std::begin(kTurnEnds), std::end(kTurnEnds), token.text) != std::end(kTurnEnds)) found.push_back(token.id);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  end_of_turn = std::move(found);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> out;
  if (options.add_special) out = parts_->prefix;
  encode_text(*parts_, lossy_utf8(text), options.parse_special, {}, out);
  if (options.add_special) out.insert(out.end(), parts_->suffix.begin(), parts_->suffix.end());
  return out;
}

void encode_text(const TokenizerParts& parts, const std::string& valid, bool parse_special, std::span<const TextRange> foreign,
                 std::vector<TokenId>& out) {
  BpeEncoder encoder(parts.model);
  StepBudget normal_budget(parts.name, valid.size()), piece_budget = normal_budget;  // of the whole text, whatever cuts it
  for (const TextPart& part : parts.added.cut(valid, false, parse_special, foreign)) {
    if (part.id >= 0) {
      out.push_back(part.id);
      continue;
    }
    const std::string_view text = std::string_view(valid).substr(part.begin, part.end - part.begin);
    const std::string normal = normalize(parts.normalizer, text, normal_budget);
    const std::vector<TextRange> inside = normal_ranges(parts, text, part.begin, normal, foreign);
    for (const TextPart& inner : parts.added.cut(normal, true, parse_special, inside)) {
      if (inner.id >= 0) {
        out.push_back(inner.id);
        continue;
      }
      Pieces pieces{normal.substr(inner.begin, inner.end - inner.begin), {}};
      pieces.ranges.push_back({0, pieces.text.size(), part.begin == 0 && inner.begin == 0});
      pre_tokenize(parts.pre_tokenizer, pieces, piece_budget);
      for (const Pieces::Range& range : pieces.ranges) {
        encoder.encode(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), out);
      }
    }
  }
}

size_t Tokenizer::vocabulary_size() const { return parts_->model.tokens.size() + parts_->added_spelling.size(); }

std::string_view Tokenizer::token(TokenId id) const {
  if (id < 0 || id >= kMaxVocabulary) {
    fail(ErrorCode::kInvalidArgument, parts_->name, ": token ", id, ", expected one from 0 to ", kMaxVocabulary - 1);
  }
  if (static_cast<size_t>(id) >= vocabulary_size()) return {};
  const size_t i = static_cast<size_t>(id), n = parts_->model.tokens.size();
  return i < n ? parts_->model.tokens[i] : parts_->added_spelling[i - n];
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  for (const AddedToken& added : parts_->added.tokens()) {
    if (added.text == token) return added.id;
  }
  return parts_->model.find(token);
}

bool Tokenizer::is_special(TokenId id) const { return parts_->added.is_special(id); }
std::optional<TokenId> Tokenizer::bos() const { return parts_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return parts_->eos; }
std::span<const TokenId> Tokenizer::end_of_turn() const { return parts_->end_of_turn; }
bool Tokenizer::adds_bos() const { return parts_->bos && !parts_->prefix.empty() && parts_->prefix[0] == *parts_->bos; }
std::span<const std::string> Tokenizer::notes() const { return parts_->notes; }
const std::string& Tokenizer::chat_template() const { return parts_->chat_template; }
std::span<const NamedTemplate> Tokenizer::named_chat_templates() const { return parts_->named_templates; }

}  // namespace kpd::text
