// text: text to token ids and back, as the model's own tokenizer does it: byte-level BPE and SentencePiece-style BPE with byte
// fallback, from tokenizer.json (Hugging Face) or from a GGUF file's metadata. Ids and texts are those of Hugging Face's
// tokenizers package; truncation and padding that a tokenizer.json asks for are left out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpd::io {
class GgufMetadata;
}

namespace kpd::text {

using TokenId = int32_t;
inline constexpr TokenId kMaxVocabulary = 1 << 24;

struct TokenizerParts;  // private: src/text/tokenizer_parts.h

struct EncodeOptions {
  bool add_special = true;    // what the tokenizer puts around a text by itself (BOS, EOS)
  bool parse_special = true;  // text that spells a special token ("<|im_start|>") becomes that token
};

// The bytes [begin, end) of a text.
struct TextRange {
  size_t begin, end;
  bool operator==(const TextRange&) const = default;
};

// One of several chat templates.
struct NamedTemplate {
  std::string name, source;
};

// Immutable after construction; all const members are thread-safe. One that was moved from can only be destroyed or assigned
// to.
class Tokenizer {
 public:
  // `directory` holds tokenizer.json and, where there is one, tokenizer_config.json and generation_config.json.
  // Throws Error(kIo | kCorruptData | kUnsupported) naming the file and the part.
  static Tokenizer from_directory(const std::string& directory);
  // The texts of those files; `name` is named in errors. The last two may be empty.
  static Tokenizer from_json(std::string_view tokenizer, std::string_view tokenizer_config, std::string_view name,
                             std::string_view generation_config = {});
  // Throws Error(kCorruptData | kUnsupported) naming the file and the key.
  static Tokenizer from_gguf(const io::GgufMetadata& metadata);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Malformed UTF-8 is replaced as Hugging Face's from_utf8_lossy does (U+FFFD).
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The same for a prompt that a template made, without what the tokenizer adds by itself. Special tokens are read in what is
  // not `foreign` alone: never in, into or out of those bytes, which are someone else's. `foreign` is ascending and disjoint;
  // text that spells no special token becomes the ids that encode(text, {false, true}) gives.
  std::vector<TokenId> encode(std::string_view text, std::span<const TextRange> foreign) const;
  // An id that no token has is no text: models have more outputs than tokens. One that no model can have, negative or from
  // kMaxVocabulary, is refused: Error(kInvalidArgument). skip_special leaves special tokens out.
  std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const;

  size_t vocabulary_size() const;                             // added tokens included
  std::string_view token(TokenId id) const;                   // as the vocabulary spells it; as decode for ids of none
  std::optional<TokenId> find(std::string_view token) const;  // by that spelling
  // What the token adds to a text, in bytes: characters may be spread over tokens. `opens_text`: no token came before; some
  // decoders drop a space there. Joined, and with U+FFFD for what is no UTF-8, they are decode() of all tokens, specials too.
  std::string token_bytes(TokenId id, bool opens_text = false) const;
  bool is_special(TokenId id) const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::span<const TokenId> end_of_turn()
      const;              // every token that ends a generation (EOS, <|im_end|>, <|eot_id|> ...), ascending
  bool adds_bos() const;  // encode(add_special) puts BOS first
  // Jinja source; empty if there is none, or several of which none is the default.
  const std::string& chat_template() const;
  std::span<const NamedTemplate> named_chat_templates() const;  // those beside it
  // What the file lacks or says wrongly, and what was taken instead: sentences for its user, none for most files.
  std::span<const std::string> notes() const;

 private:
  friend struct TokenizerAccess;  // the library's own files
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  std::unique_ptr<const TokenizerParts> parts_;
};

// Decodes token by token and gives out whole UTF-8 characters only. The pieces joined equal decode() of all tokens. The
// tokenizer must outlive it. Thread-compatible. One that was moved from can only be destroyed.
// `opens_text`: no text stands before it. Decoders of SentencePiece's kind drop the space of a text's first token, which in an
// answer that goes on from a text belongs there.
class TokenStream {
 public:
  explicit TokenStream(const Tokenizer& tokenizer, bool skip_special = true, bool opens_text = true);
  explicit TokenStream(const Tokenizer&& tokenizer, bool skip_special = true, bool opens_text = true) = delete;
  ~TokenStream();
  TokenStream(TokenStream&&) noexcept;

  // Appends to `out` the text that is complete by now; may be none. Allocates nothing once `out` and what the decoder keeps
  // from token to token have their room.
  void push(TokenId token, std::string& out);
  std::string push(TokenId token);
  std::string finish();  // what is left, incomplete characters as U+FFFD

 private:
  struct State;  // what the decoder's steps hold back
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::unique_ptr<State> state_;
};

}  // namespace kpd::text
