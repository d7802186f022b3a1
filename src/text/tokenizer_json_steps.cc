// text: the steps in a tokenizer.json: normalizer, pre-tokenizer, post-processor, decoder. A step that is not known here is
// refused by its name: without it the ids would be wrong and nothing would tell.
#include <algorithm>
#include <array>

#include "io/text.h"
#include "kpd/base/error.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

constexpr size_t kMaxSteps = 64;
constexpr size_t kMaxTemplateTokens = 1024;

// Calls one(step) for the part itself or, if it is a Sequence, for all in it.
template <class Fn>
void for_each_step(const JsonPart& part, const char* list, size_t& count, const Fn& one) {
  if (part.is_null()) return;
  if (part.member("type").text() != "Sequence") {
    if (++count > kMaxSteps) part.corrupt(str("at most ", kMaxSteps, " steps"));
    one(part);
    return;
  }
  const JsonPart steps = part.member(list);
  steps.expect_array();
  for (size_t i = 0; i < steps.size(); ++i) for_each_step(steps.item(i), list, count, one);
}

template <class Fn>
void for_each_step(const JsonPart& part, const char* list, const Fn& one) {
  size_t count = 0;
  for_each_step(part, list, count, one);
}

SplitBehavior split_behavior(const JsonPart& part) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {{"Removed", SplitBehavior::kRemoved},
                                                                   {"Isolated", SplitBehavior::kIsolated},
                                                                   {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                                                   {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                                                   {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [name, behavior] : kNames) {
    if (part.text() == name) return behavior;
  }
  part.unsupported("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

PrependScheme prepend_scheme(const JsonPart& step) {
  const JsonPart scheme = step.member("prepend_scheme");
  // Files of before this key have add_prefix_space.
  if (scheme.is_null())
    return step.member("add_prefix_space").boolean_or(true) ? PrependScheme::kAlways : PrependScheme::kNever;
  if (scheme.text() == "always") return PrependScheme::kAlways;
  if (scheme.text() == "first") return PrependScheme::kFirst;
  if (scheme.text() == "never") return PrependScheme::kNever;
  scheme.unsupported("always, first or never");
}

// The ids of one side of a template: tokens before and after the text.
void read_template(const JsonPart& step, TokenizerParts& parts) {
  const JsonPart single = step.member("single");
  single.expect_array();
  bool after = false;
  for (size_t i = 0; i < single.size(); ++i) {
    const JsonPart piece = single.item(i);
    if (!piece.member("Sequence").is_null()) {
      if (after) piece.unsupported("the text once in a template");
      after = true;
      continue;
    }
    const JsonPart name = piece.member("SpecialToken").member("id");
    const JsonPart tokens = step.member("special_tokens");
    if (!tokens.value().is_object() || !tokens.value().contains(name.text())) {
      name.corrupt("a token of the template's special_tokens");
    }
    const JsonPart ids = tokens.member(name.text().c_str()).member("ids");
    ids.expect_array();
    std::vector<TokenId>& side = after ? parts.suffix : parts.prefix;
    for (size_t k = 0; k < ids.size(); ++k) {
      const uint64_t id = ids.item(k).number();
      if (id >= parts.model.tokens.size() + parts.added_spelling.size()) ids.item(k).corrupt("the id of a token");
      side.push_back(static_cast<TokenId>(id));
    }
    if (side.size() > kMaxTemplateTokens) single.corrupt(str("at most ", kMaxTemplateTokens, " tokens"));
  }
  if (!after) single.unsupported("a template with the text in it");
}

}  // namespace

Pattern read_pattern(const JsonPart& part) {
  const JsonPart literal = part.member("String");
  if (!literal.is_null()) return Pattern::literal(literal.text());
  const JsonPart regex = part.member("Regex");
  if (regex.is_null()) part.corrupt("{\"String\": ...} or {\"Regex\": ...}");
  return Pattern::regex(regex.text(), regex.where());
}

void read_normalizer(const JsonPart& part, std::vector<NormalizerStep>& steps) {
  for_each_step(part, "normalizers", [&](const JsonPart& step) {
    const std::string& type = step.member("type").text();
    if (type == "NFC") {
      steps.push_back({NormalizerStep::Kind::kNfc, {}, {}});
    } else if (type == "Prepend") {
      steps.push_back({NormalizerStep::Kind::kPrepend, {}, step.member("prepend").text()});
    } else if (type == "Replace") {
      steps.push_back({NormalizerStep::Kind::kReplace, read_pattern(step.member("pattern")), step.member("content").text()});
    } else {
      step.member("type").unsupported("NFC, Prepend, Replace or Sequence");
    }
  });
}

void read_pre_tokenizer(const JsonPart& part, std::vector<PreTokenizerStep>& steps) {
  bool spells_bytes = false;
  for_each_step(part, "pretokenizers", [&](const JsonPart& json) {
    const std::string& type = json.member("type").text();
    PreTokenizerStep step{};
    if (type == "ByteLevel") {
      // Bytes spelled twice are no vocabulary's, and twice as many.
      if (std::exchange(spells_bytes, true)) json.member("type").unsupported("ByteLevel once");
      step.kind = PreTokenizerStep::Kind::kByteLevel;
      step.add_prefix_space = json.member("add_prefix_space").boolean_or(true);
      step.use_regex = json.member("use_regex").boolean_or(true);
    } else if (type == "Digits") {
      step.kind = PreTokenizerStep::Kind::kDigits;
      step.individual_digits = json.member("individual_digits").boolean_or(false);
    } else if (type == "Punctuation") {
      step.kind = PreTokenizerStep::Kind::kPunctuation;
      const JsonPart behavior = json.member("behavior");
      step.behavior = behavior.is_null() ? SplitBehavior::kIsolated : split_behavior(behavior);
    } else if (type == "Split") {
      step.kind = PreTokenizerStep::Kind::kSplit;
      step.pattern = read_pattern(json.member("pattern"));
      step.behavior = split_behavior(json.member("behavior"));
      step.invert = json.member("invert").boolean_or(false);
    } else if (type == "Metaspace") {
      step.kind = PreTokenizerStep::Kind::kMetaspace;
      step.replacement = json.member("replacement").one_char();
      step.prepend_scheme = prepend_scheme(json);
      step.split = json.member("split").boolean_or(true);
    } else {
      json.member("type").unsupported("ByteLevel, Digits, Punctuation, Split, Metaspace or Sequence");
    }
    steps.push_back(std::move(step));
  });
}

void read_post_processor(const JsonPart& part, TokenizerParts& parts) {
  bool has_template = false;
  for_each_step(part, "processors", [&](const JsonPart& step) {
    const std::string& type = step.member("type").text();
    if (type == "ByteLevel") return;  // concerns offsets only
    if (type != "TemplateProcessing") step.member("type").unsupported("TemplateProcessing, ByteLevel or Sequence");
    if (std::exchange(has_template, true)) step.member("type").unsupported("one template");
    read_template(step, parts);
  });
}

void read_decoder(const JsonPart& part, TokenizerParts& parts) {
  parts.has_decoder = !part.is_null();
  bool spells_bytes = false;
  for_each_step(part, "decoders", [&](const JsonPart& json) {
    using Kind = DecoderStep::Kind;
    const std::string& type = json.member("type").text();
    DecoderStep step{};
    if (type == "ByteLevel") {
      if (std::exchange(spells_bytes, true)) json.member("type").unsupported("ByteLevel once");
      step.kind = Kind::kByteLevel;
    } else if (type == "Metaspace") {
      step.kind = Kind::kMetaspace;
      step.text = json.member("replacement").one_char();
      step.prepend_scheme = prepend_scheme(json);
    } else if (type == "Replace") {
      step.kind = Kind::kReplace;
      step.pattern = read_pattern(json.member("pattern"));
      step.text = json.member("content").text();
    } else if (type == "ByteFallback") {
      step.kind = Kind::kByteFallback;
    } else if (type == "Fuse") {
      step.kind = Kind::kFuse;
    } else if (type == "Strip") {
      step.kind = Kind::kStrip;
      step.text = json.member("content").one_char();
      step.start = json.member("start").number();
      step.stop = json.member("stop").number();
    } else {
      json.member("type").unsupported("ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip or Sequence");
    }
    parts.decoder.push_back(std::move(step));
  });
}

}  // namespace kpd::text
