// text: normalizer and pre-tokenizer steps.
#include <algorithm>
#include <array>

#include "kpd/base/error.h"

#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

// GPT-2's spelling of bytes: printable bytes of Latin-1 stand for themselves, the others follow from U+0100 in their order.
struct ByteSpelling {
  ByteSpelling() {
    byte_of.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const uint32_t code = printable ? b : next++;
      append_utf8(text[b], code);
      byte_of[code] = static_cast<int16_t>(b);
    }
  }
  std::array<std::string, 256> text;
  std::array<int16_t, 0x180> byte_of{};
};

const ByteSpelling& spelling() {
  static const ByteSpelling table;
  return table;
}

struct Cut {
  size_t begin, end;
  bool is_match;
};

// The text as matches and what lies between them.
std::vector<Cut> cut_at_matches(std::string_view text, const Pattern& pattern, bool invert) {
  std::vector<Cut> cuts;
  size_t done = 0;
  pattern.for_each(text, [&](size_t begin, size_t end) {
    if (done != begin) cuts.push_back({done, begin, invert});
    cuts.push_back({begin, end, !invert});
    done = end;
  });
  if (done != text.size()) cuts.push_back({done, text.size(), invert});
  return cuts;
}

// Every character of the class is a match.
std::vector<Cut> cut_at_class(std::string_view text, CharClass of) {
  std::vector<Cut> cuts;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    if (char_class(c.code) & of) {
      if (done != at) cuts.push_back({done, at, false});
      cuts.push_back({at, at + c.bytes, true});
      done = at + c.bytes;
    }
    at += c.bytes;
  }
  if (done != text.size()) cuts.push_back({done, text.size(), false});
  return cuts;
}

std::vector<Cut> join(const std::vector<Cut>& cuts, SplitBehavior behavior) {
  std::vector<Cut> out;
  out.reserve(cuts.size());
  for (size_t i = 0; i < cuts.size(); ++i) {
    const Cut& cut = cuts[i];
    const bool previous_match = i > 0 && cuts[i - 1].is_match;
    bool joined = false;
    if (behavior == SplitBehavior::kContiguous) {
      joined = i > 0 && previous_match == cut.is_match;
    } else if (behavior == SplitBehavior::kMergedWithPrevious) {
      joined = i > 0 && cut.is_match && !previous_match;
    } else if (behavior == SplitBehavior::kMergedWithNext) {
      // The last of several matches in a row goes with what follows them.
      joined = i > 0 && previous_match && !cut.is_match;
    }
    if (behavior == SplitBehavior::kRemoved && cut.is_match) continue;
    if (joined) {
      out.back().end = cut.end;
    } else {
      out.push_back(cut);
    }
  }
  return out;
}

void add_range(Pieces& out, size_t begin, size_t end, bool opens_text) {
  if (begin < end) out.ranges.push_back({begin, end, opens_text});
}

void split_pieces(const PreTokenizerStep& step, Pieces& pieces) {
  Pieces out;
  for (const Pieces::Range& range : pieces.ranges) {
    const std::string_view text = std::string_view(pieces.text).substr(range.begin, range.end - range.begin);
    std::vector<Cut> cuts;
    if (step.kind == PreTokenizerStep::Kind::kDigits) {
      cuts = join(cut_at_class(text, kDigit), step.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
    } else if (step.kind == PreTokenizerStep::Kind::kPunctuation) {
      cuts = join(cut_at_class(text, kPunctuation), step.behavior);
    } else {
      cuts = join(cut_at_matches(text, step.pattern, step.invert), step.behavior);
    }
    for (const Cut& cut : cuts) {
      add_range(out, range.begin + cut.begin, range.begin + cut.end, range.opens_text && cut.begin == 0);
    }
  }
  pieces.ranges = std::move(out.ranges);
}

void spell_bytes(const PreTokenizerStep& step, Pieces& pieces) {
  static const Pattern words = Pattern::gpt2_words();
  Pieces out;
  out.text.reserve(pieces.text.size() + pieces.text.size() / 2);
  out.ranges.reserve(pieces.ranges.size());
  std::string prefixed;
  for (const Pieces::Range& range : pieces.ranges) {
    std::string_view text = std::string_view(pieces.text).substr(range.begin, range.end - range.begin);
    if (step.add_prefix_space && !text.starts_with(' ')) {
      prefixed = str(" ", text);
      text = prefixed;
    }
    const auto spell = [&](size_t begin, size_t end) {
      const size_t first = out.text.size();
      for (size_t i = begin; i < end; ++i) out.text += byte_spelling(static_cast<unsigned char>(text[i]));
      add_range(out, first, out.text.size(), range.opens_text && begin == 0);
    };
    if (step.use_regex) {
      words.for_each(text, spell);
    } else {
      spell(0, text.size());
    }
  }
  pieces = std::move(out);
}

void spell_spaces(const PreTokenizerStep& step, Pieces& pieces, const StepBudget& budget) {
  Pieces out;
  const Pattern mark = Pattern::literal(step.replacement);
  const Pattern space = Pattern::literal(" ");
  for (const Pieces::Range& range : pieces.ranges) {
    const std::string_view text = std::string_view(pieces.text).substr(range.begin, range.end - range.begin);
    std::string spelled;
    for (const Cut& cut : cut_at_matches(text, space, false)) {
      spelled += cut.is_match ? std::string_view(step.replacement) : text.substr(cut.begin, cut.end - cut.begin);
    }
    const bool prepend =
        step.prepend_scheme == PrependScheme::kAlways || (step.prepend_scheme == PrependScheme::kFirst && range.opens_text);
    if (prepend && !spelled.starts_with(step.replacement)) spelled.insert(0, step.replacement);
    const size_t first = out.text.size();
    budget.expect(first + spelled.size());
    out.text += spelled;
    if (!step.split) {
      add_range(out, first, out.text.size(), range.opens_text);
      continue;
    }
    for (const Cut& cut : join(cut_at_matches(spelled, mark, false), SplitBehavior::kMergedWithNext)) {
      add_range(out, first + cut.begin, first + cut.end, range.opens_text && cut.begin == 0);
    }
  }
  pieces = std::move(out);
}

}  // namespace

std::string_view byte_spelling(unsigned char byte) { return spelling().text[byte]; }

int spelled_byte(uint32_t code) { return code < spelling().byte_of.size() ? spelling().byte_of[code] : -1; }

void StepBudget::add(size_t text_bytes) {
  constexpr size_t kGrowth = 16;
  left_ += kGrowth * std::min(text_bytes, (SIZE_MAX - left_) / kGrowth);
}

void StepBudget::expect(size_t bytes) const {
  if (bytes > left_) {
    fail(ErrorCode::kLimitExceeded, file_, ": the tokenizer's steps make ", bytes, " bytes of a text, ", left_, " are allowed");
  }
}

void StepBudget::take(size_t bytes) {
  expect(bytes);
  left_ -= bytes;
}

std::string normalize(const std::vector<NormalizerStep>& steps, std::string_view text, StepBudget& budget) {
  std::string out(text);
  for (const NormalizerStep& step : steps) {
    if (step.kind == NormalizerStep::Kind::kNfc) {
      out = nfc(out);
    } else if (step.kind == NormalizerStep::Kind::kPrepend) {
      if (out.empty()) continue;
      budget.expect(out.size() + step.text.size());
      out.insert(0, step.text);
    } else {
      std::string replaced;
      for (const Cut& cut : cut_at_matches(out, step.pattern, false)) {
        const auto part =
            cut.is_match ? std::string_view(step.text) : std::string_view(out).substr(cut.begin, cut.end - cut.begin);
        budget.expect(replaced.size() + part.size());
        replaced += part;
      }
      out = std::move(replaced);
    }
  }
  budget.take(out.size());
  return out;
}

void pre_tokenize(const std::vector<PreTokenizerStep>& steps, Pieces& pieces, StepBudget& budget) {
  for (const PreTokenizerStep& step : steps) {
    if (step.kind == PreTokenizerStep::Kind::kByteLevel) {
      spell_bytes(step, pieces);
    } else if (step.kind == PreTokenizerStep::Kind::kMetaspace) {
      spell_spaces(step, pieces, budget);
    } else {
      split_pieces(step, pieces);
    }
  }
  budget.take(pieces.text.size());
}

}  // namespace kpd::text
