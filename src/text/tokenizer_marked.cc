// text: encoding of prompts that a template made of its own text and of foreign text (a user's). All between two special tokens
// is encoded as one text, so that the ids are those of the whole prompt; but what spells a special token within, into or out of
// foreign bytes stays text.
#include <algorithm>

#include "kpd/base/error.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

// The parts of foreign ranges that lie in [begin, end), counted from begin.
std::vector<TextRange> within(std::span<const TextRange> foreign, size_t begin, size_t end) {
  std::vector<TextRange> out;
  for (const TextRange& range : foreign) {
    const size_t from = std::max(range.begin, begin), to = std::min(range.end, end);
    if (from < to) out.push_back({from - begin, to - begin});
  }
  return out;
}

}  // namespace

std::vector<TextRange> normal_ranges(const TokenizerParts& parts, std::string_view text, size_t begin, std::string_view normal,
                                     std::span<const TextRange> foreign) {
  // Few models have special tokens that are searched for in normalized text.
  if (foreign.empty() || !parts.added.has_normalized_special()) return {};
  const std::vector<TextRange> ranges = within(foreign, begin, begin + text.size());
  if (ranges.empty()) return {};
  // Stretch by stretch the normalizer makes what it makes of the whole, unless a step looks across their edges.
  std::vector<NormalizerStep> later;
  for (const NormalizerStep& step : parts.normalizer) {
    if (step.kind != NormalizerStep::Kind::kPrepend) later.push_back(step);
  }
  StepBudget budget(parts.name, text.size());
  std::string made;
  size_t done = 0;
  const auto add = [&](size_t end) {
    if (end > done) made += normalize(made.empty() ? parts.normalizer : later, text.substr(done, end - done), budget);
    done = end;
    return made.size();
  };
  std::vector<TextRange> out;
  for (const TextRange& range : ranges) {
    const size_t from = add(range.begin);
    out.push_back({from, add(range.end)});
  }
  add(text.size());
  if (made == normal) return out;
  return {{0, normal.size()}};
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, std::span<const TextRange> foreign) const {
  size_t end = 0;
  for (const TextRange& range : foreign) {
    if (range.begin < end || range.end < range.begin || range.end > text.size())
      fail(ErrorCode::kInvalidArgument, "foreign ranges of a prompt: expected ascending, disjoint ones within its bytes");
    end = range.end;
  }
  std::vector<TokenId> out;
  if (is_utf8(text)) {
    encode_text(*parts_, std::string(text), true, within(foreign, 0, text.size()), out);
    return out;
  }
  // Replacements move what follows them.
  std::string valid;
  std::vector<TextRange> moved;
  size_t done = 0;
  for (const TextRange& range : foreign) {
    valid += lossy_utf8(text.substr(done, range.begin - done));
    const size_t begin = valid.size();
    valid += lossy_utf8(text.substr(range.begin, range.end - range.begin));
    if (valid.size() > begin) moved.push_back({begin, valid.size()});
    done = range.end;
  }
  valid += lossy_utf8(text.substr(done));
  encode_text(*parts_, valid, true, moved, out);
  return out;
}

}  // namespace kpd::text
