// text: token ids to text. A decoder is a chain of steps over the list of the tokens' spellings, as Hugging Face's. Here the
// steps pass spellings on as they come and hold back what later tokens may change, so that decoding a whole list and a stream
// are one code path.
#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

#include "kpd/base/error.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

using Kind = DecoderStep::Kind;

// The byte that a spelling like <0x0A> stands for, -1 for others. A sign before one digit counts, as it does in Rust's parser.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const char* first = token.data() + 3;
  if (*first == '+') ++first;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(first, token.data() + 5, value, 16);
  return error == std::errc() && end == token.data() + 5 ? static_cast<int>(value) : -1;
}

// The bytes that the token's characters stand for; those of the token itself if one of them stands for none.
void append_spelled_bytes(std::string& out, std::string_view token) {
  const size_t before = out.size();
  for (size_t at = 0; at < token.size();) {
    const Char c = char_at(token, at);
    const int byte = spelled_byte(c.code);
    if (byte < 0) {
      out.resize(before);
      out += token;
      return;
    }
    out += static_cast<char>(byte);
    at += c.bytes;
  }
}

std::string_view strip(std::string_view token, const DecoderStep& step) {
  for (size_t i = 0; i < step.start && token.starts_with(step.text); ++i) token.remove_prefix(step.text.size());
  for (size_t i = 0; i < step.stop && token.ends_with(step.text); ++i) token.remove_suffix(step.text.size());
  return token;
}

// These two put what they make of `token` in place of what `out` was.
void replace(std::string_view token, const DecoderStep& step, StepBudget& budget, std::string& out) {
  out.clear();
  size_t done = 0;
  const auto match = [&](size_t begin, size_t end) {
    budget.expect(out.size() + (begin - done) + step.text.size());
    out += token.substr(done, begin - done);
    out += step.text;
    done = end;
  };
  step.pattern.for_each(token, std::ref(match));  // a reference: no memory is taken for the captures
  out += token.substr(done);
  budget.take(out.size());
}

// Every character equal to `mark` becomes a space, or nothing.
void spaces_for(std::string_view token, std::string_view mark, bool drop, std::string& out) {
  out.clear();
  for (size_t at = 0; at < token.size();) {
    const size_t bytes = char_at(token, at).bytes;
    const std::string_view c = token.substr(at, bytes);
    if (c != mark) {
      out += c;
    } else if (!drop) {
      out += ' ';
    }
    at += bytes;
  }
}

}  // namespace

struct TokenStream::State {
  struct Step {
    const DecoderStep* step;
    bool of_one;          // all that arrives is one token in parts: a step before it has joined them
    bool waits;           // nothing is passed on before the end
    bool first = true;    // no token has come yet
    size_t stripped = 0;  // kStrip of one token: how many are gone
    std::string held{};
    std::string made{};  // of the token in hand, kept for its memory
    StepBudget budget;   // kReplace
  };

  explicit State(const TokenizerParts& parts) : has_decoder(parts.has_decoder) {
    bool joined = false;
    for (const DecoderStep& step : parts.decoder) {
      const bool streams =
          step.kind == Kind::kFuse || step.kind == Kind::kMetaspace || (step.kind == Kind::kStrip && step.stop == 0);
      steps.push_back({&step, joined, joined && !streams, true, 0, {}, {}, StepBudget(parts.name, 0)});
      joined = joined || step.kind == Kind::kFuse || step.kind == Kind::kByteLevel;
    }
  }

  // As if tokens had come before.
  void go_on() {
    for (Step& s : steps) {
      s.first = false;
      s.stripped = s.step->start;
    }
  }

  void give(std::string_view token) {
    for (Step& s : steps) s.budget.add(token.size());
    push(0, token);
  }

  // Gives the token to step i and what comes out to those after it.
  void push(size_t i, std::string_view token) {
    if (i == steps.size()) {
      out += token;
    } else if (steps[i].waits) {
      steps[i].held += token;
    } else {
      apply(i, token);
    }
  }

  void finish() {
    for (size_t i = 0; i < steps.size(); ++i) {
      Step& s = steps[i];
      if (s.waits) {
        s.waits = s.of_one = false;
        apply(i, std::exchange(s.held, {}));
      }
      if (s.step->kind == Kind::kByteFallback) {
        flush_bytes(i);
      } else if (s.step->kind == Kind::kByteLevel && !s.held.empty()) {
        push(i + 1, lossy_utf8(std::exchange(s.held, {})));
      }
    }
  }

  bool has_decoder;
  std::string out;

 private:
  void apply(size_t i, std::string_view token) {
    Step& s = steps[i];
    switch (s.step->kind) {
      case Kind::kByteLevel: {
        append_spelled_bytes(s.held, token);
        if (is_utf8(s.held)) {
          std::swap(s.held, s.made);
          s.held.clear();
        } else {
          size_t incomplete = 0;
          s.made = lossy_utf8(s.held, &incomplete);
          s.held.erase(0, s.held.size() - incomplete);
        }
        if (!s.made.empty()) push(i + 1, s.made);
        break;
      }
      case Kind::kMetaspace: {
        const bool drop = (s.first || s.of_one) && s.step->prepend_scheme != PrependScheme::kNever;
        spaces_for(token, s.step->text, drop, s.made);
        push(i + 1, s.made);
        break;
      }
      case Kind::kReplace:
        replace(token, *s.step, s.budget, s.made);
        push(i + 1, s.made);
        break;
      case Kind::kByteFallback:
        if (const int byte = fallback_byte(token); byte >= 0) {
          s.held += static_cast<char>(byte);
        } else {
          flush_bytes(i);
          push(i + 1, token);
        }
        break;
      case Kind::kFuse:
        push(i + 1, token);
        break;
      case Kind::kStrip:
        strip_token(i, token);
        break;
    }
    s.first = false;
  }

  void strip_token(size_t i, std::string_view token) {
    Step& s = steps[i];
    if (!s.of_one) {
      push(i + 1, strip(token, *s.step));
      return;
    }
    while (s.stripped < s.step->start && token.starts_with(s.step->text)) {
      token.remove_prefix(s.step->text.size());
      ++s.stripped;
    }
    if (token.empty()) return;
    s.stripped = s.step->start;
    push(i + 1, token);
  }

  // A run of bytes is text if all of it is; otherwise every byte of it is replaced, those of whole characters too.
  void flush_bytes(size_t i) {
    std::string& bytes = steps[i].made;
    std::swap(bytes, steps[i].held);
    steps[i].held.clear();
    if (bytes.empty()) return;
    if (is_utf8(bytes)) {
      push(i + 1, bytes);
    } else {
      for (size_t k = 0; k < bytes.size(); ++k) push(i + 1, kReplacementChar);
    }
  }

  std::vector<Step> steps;
};

TokenStream::TokenStream(const Tokenizer& tokenizer, bool skip_special, bool opens_text)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      first_(opens_text),
      state_(std::make_unique<State>(TokenizerAccess::parts(tokenizer))) {
  if (!opens_text) state_->go_on();
}
TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;

void TokenStream::push(TokenId token, std::string& out) {
  const std::string_view spelling = tokenizer_.token(token);
  if (spelling.empty() || (skip_special_ && tokenizer_.is_special(token))) return;
  if (!state_->has_decoder && !std::exchange(first_, false)) state_->out += ' ';
  state_->give(spelling);
  out += state_->out;
  state_->out.clear();
}

std::string TokenStream::push(TokenId token) {
  std::string out;
  push(token, out);
  return out;
}

std::string TokenStream::finish() {
  state_->finish();
  return std::exchange(state_->out, {});
}

std::string Tokenizer::token_bytes(TokenId id, bool opens_text) const {
  std::string text(token(id));
  if (text.empty()) return text;
  if (!parts_->has_decoder) return opens_text ? text : " " + text;
  bool joined = false;
  std::string made;
  StepBudget budget(parts_->name, text.size());
  for (const DecoderStep& step : parts_->decoder) {
    switch (step.kind) {
      case Kind::kByteLevel: {
        std::string bytes;
        append_spelled_bytes(bytes, text);
        text = std::move(bytes);
        joined = true;
        break;
      }
      case Kind::kMetaspace:
        spaces_for(text, step.text, (opens_text || joined) && step.prepend_scheme != PrependScheme::kNever, made);
        std::swap(text, made);
        break;
      case Kind::kReplace:
        replace(text, step, budget, made);
        std::swap(text, made);
        break;
      case Kind::kByteFallback:
        if (const int byte = fallback_byte(text); byte >= 0) return {static_cast<char>(byte)};
        break;
      case Kind::kFuse:
        joined = true;
        break;
      case Kind::kStrip:
        // Of all tokens together only the first can lose what the text begins with.
        if (!joined) {
          text = std::string(strip(text, step));
        } else if (opens_text) {
          for (size_t i = 0; i < step.start && text.starts_with(step.text); ++i) text.erase(0, step.text.size());
        }
        break;
    }
    if (!is_utf8(text)) break;  // a part of a character, which no step after this one can read
  }
  return text;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  TokenStream stream(*this, skip_special);
  std::string out;
  for (const TokenId token : tokens) out += stream.push(token);
  out += stream.finish();
  return out;
}

}  // namespace kpd::text
