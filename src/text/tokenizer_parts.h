// text: what a tokenizer is made of, in the order in which a text passes: added tokens cut out, normalizer, added tokens cut
// out of the normalized text, pre-tokenizer, byte-pair encoding, post-processor; and the decoder for the way back.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kpd/text/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pattern.h"

namespace kpd::text {

struct NormalizerStep {
  enum class Kind { kNfc, kPrepend, kReplace } kind;
  Pattern pattern{};   // kReplace: what to replace
  std::string text{};  // kPrepend, kReplace
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kNever, kFirst, kAlways };

struct PreTokenizerStep {
  enum class Kind { kByteLevel, kDigits, kPunctuation, kSplit, kMetaspace } kind;
  bool add_prefix_space = false;                         // kByteLevel
  bool use_regex = false;                                // kByteLevel
  bool individual_digits = false;                        // kDigits
  Pattern pattern{};                                     // kSplit
  SplitBehavior behavior = SplitBehavior::kIsolated;     // kSplit, kPunctuation
  bool invert = false;                                   // kSplit
  std::string replacement{};                             // kMetaspace: one character
  PrependScheme prepend_scheme = PrependScheme::kNever;  // kMetaspace
  bool split = true;                                     // kMetaspace
};

struct DecoderStep {
  enum class Kind { kByteLevel, kMetaspace, kReplace, kByteFallback, kFuse, kStrip } kind;
  Pattern pattern{};                                     // kReplace
  std::string text{};                                    // kReplace: by what; kMetaspace, kStrip: one character
  PrependScheme prepend_scheme = PrependScheme::kNever;  // kMetaspace
  size_t start = 0, stop = 0;                            // kStrip: how many at either end
};

struct TokenizerParts {
  std::string name;  // of the file, for errors
  BpeModel model;
  std::vector<std::string> added_spelling;  // tokens beyond the model's, by id - model.tokens.size()
  AddedTokens added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<TokenId> prefix, suffix;  // what encode(add_special) puts around a text
  bool has_decoder = false;             // without one, tokens are joined by spaces
  std::vector<DecoderStep> decoder;
  std::optional<TokenId> bos, eos;
  std::vector<TokenId> end_of_turn;
  std::string chat_template;
  std::vector<NamedTemplate> named_templates;  // beside it
  // Variables of chat templates that are texts of tokens: bos_token, eos_token, unk_token ...
  std::vector<std::pair<std::string, std::string>> chat_tokens;

  std::vector<std::string> notes;  // Tokenizer::notes

  // Gives end_of_turn its tokens: `ids` (from the files), eos, and the special tokens known for it. Called last.
  void set_end_of_turn(std::vector<TokenId> ids);
};

struct TokenizerAccess {
  static Tokenizer make(std::unique_ptr<const TokenizerParts> parts) { return Tokenizer(std::move(parts)); }
  static const TokenizerParts& parts(const Tokenizer& tokenizer) { return *tokenizer.parts_; }
};

// What steps may make of a text. A hostile file's steps double it one after the other; those of known models make a space three
// bytes and a byte two.
class StepBudget {
 public:
  StepBudget(std::string_view file, size_t text_bytes) : file_(file) { add(text_bytes); }
  void add(size_t text_bytes);
  // Throws Error(kLimitExceeded) if `bytes` are more than is left.
  void expect(size_t bytes) const;
  void take(size_t bytes);

 private:
  std::string_view file_;
  size_t left_ = size_t{64} << 10;
};

// The text after all normalizer steps; takes its size from the budget.
std::string normalize(const std::vector<NormalizerStep>& steps, std::string_view text, StepBudget& budget);

// A text cut into pieces; a step cuts further, and may rewrite the text.
struct Pieces {
  struct Range {
    size_t begin, end;
    bool opens_text;  // it begins where the whole text to be encoded begins
  };
  std::string text;
  std::vector<Range> ranges;
};

// Takes the size of what it makes from the budget.
void pre_tokenize(const std::vector<PreTokenizerStep>& steps, Pieces& pieces, StepBudget& budget);

// The ids of a whole text, which must be UTF-8, at the end of `out`. Special tokens are not read in its foreign bytes.
void encode_text(const TokenizerParts& parts, const std::string& valid, bool parse_special, std::span<const TextRange> foreign,
                 std::vector<TokenId>& out);
// The foreign ranges of `normal`, which `text` became; `text` begins at `begin` of what `foreign` counts in.
std::vector<TextRange> normal_ranges(const TokenizerParts& parts, std::string_view text, size_t begin, std::string_view normal,
                                     std::span<const TextRange> foreign);

// The characters that stand for bytes in byte-level vocabularies (GPT-2): a byte's UTF-8 spelling, and the byte of a code
// point, -1 if it stands for none.
std::string_view byte_spelling(unsigned char byte);
int spelled_byte(uint32_t code);

}  // namespace kpd::text
