// text: the table of pre-tokenizers. An expression stands here as the model's own tokenizer.json has it: Oniguruma's syntax.
#include "text/pre_tokenizer_names.h"

#include <algorithm>
#include <array>

#include "kpd/base/error.h"

namespace kpd::text {
namespace {

using Kind = CutStep::Kind;

// Marks are parts of words.
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words end where their case changes from lower to upper.
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kMinicpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Spaces in powers of two.
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))"
    R"(|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCjk = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr std::string_view kHanAndKana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
// Letters that have a case.
constexpr std::string_view kDeepseekWords =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-"
    "\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-"
    "\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-"
    "\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-"
    "\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-"
    "\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr std::string_view kDeepseekSymbols = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr std::string_view kBloom = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+";

constexpr std::array kGpt2Steps = {CutStep{Kind::kGpt2Bytes}};
constexpr std::array kDigitsGpt2Steps = {CutStep{Kind::kDigits}, CutStep{Kind::kGpt2Bytes}};
constexpr std::array kLlama3Steps = {CutStep{Kind::kSplit, kLlama3Expression}, CutStep{Kind::kBytes}};
constexpr std::array kQwen2Steps = {CutStep{Kind::kSplit, kQwen2Expression}, CutStep{Kind::kBytes}};
constexpr std::array kQwen35Steps = {CutStep{Kind::kSplit, kQwen35}, CutStep{Kind::kBytes}};
constexpr std::array kTekkenSteps = {CutStep{Kind::kSplit, kTekken}, CutStep{Kind::kBytes}};
constexpr std::array kGpt4oSteps = {CutStep{Kind::kSplit, kGpt4o}, CutStep{Kind::kBytes}};
constexpr std::array kSeedCoderSteps = {CutStep{Kind::kSplit, kSeedCoder}, CutStep{Kind::kBytes}};
constexpr std::array kJais2Steps = {CutStep{Kind::kSplit, kJais2}, CutStep{Kind::kBytes}};
constexpr std::array kBloomSteps = {CutStep{Kind::kSplit, kBloom}, CutStep{Kind::kBytes}};
constexpr std::array kMinicpm5Steps = {CutStep{Kind::kSplit, R"(\p{N}{1,3})"}, CutStep{Kind::kSplit, kMinicpm5},
                                       CutStep{Kind::kBytes}};
constexpr std::array kVikingSteps = {CutStep{Kind::kSplit, kBloom}, CutStep{Kind::kDigits}, CutStep{Kind::kBytes}};
// Digits in threes from the right.
constexpr std::array kTinyAyaSteps = {CutStep{Kind::kSplit, R"(\d{1,3}(?=(?:\d{3})*\b))"}, CutStep{Kind::kSplit, kGpt4o},
                                      CutStep{Kind::kBytes}};
constexpr std::array kFalconSteps = {CutStep{Kind::kPunctuation}, CutStep{Kind::kGpt2Bytes}, CutStep{Kind::kDigitRuns},
                                     CutStep{Kind::kSplit, "[0-9][0-9][0-9]"}};
constexpr std::array kDeepseekV3Steps = {CutStep{Kind::kSplit, R"(\p{N}{1,3})"}, CutStep{Kind::kSplit, kHanAndKana},
                                         CutStep{Kind::kSplit, kDeepseekV3}, CutStep{Kind::kBytes}};
constexpr std::array kDeepseekCoderSteps = {CutStep{Kind::kSplit, R"([\r\n])"},
                                            CutStep{Kind::kSplit, R"(\s?\p{L}+)"},
                                            CutStep{Kind::kSplit, R"(\s?\p{P}+)"},
                                            CutStep{Kind::kSplit, kCjk},
                                            CutStep{Kind::kDigits},
                                            CutStep{Kind::kBytes}};
constexpr std::array kDeepseekLlmSteps = {CutStep{Kind::kSplit, R"([\r\n])"},
                                          CutStep{Kind::kSplit, kDeepseekWords},
                                          CutStep{Kind::kSplit, kDeepseekSymbols},
                                          CutStep{Kind::kSplit, R"(\s+$)"},
                                          CutStep{Kind::kSplit, kCjk},
                                          CutStep{Kind::kDigitRuns},
                                          CutStep{Kind::kBytes}};

// Normalised are the texts of those whose own files say so; of the rest it is not known that they do.
constexpr PreTokenizerName kNames[] = {
    {"default", kGpt2Steps},
    {"gpt-2", kGpt2Steps},
    {"phi-2", kGpt2Steps},
    {"jais", kGpt2Steps},
    {"a.x-4.0", kGpt2Steps},
    {"mellum", kGpt2Steps},
    {"exaone4", kGpt2Steps},
    {"trillion", kGpt2Steps},
    {"granite-docling", kGpt2Steps},
    {"olmo", kGpt2Steps, kNormalised},
    {"mpt", kGpt2Steps, kNormalised},
    {"smollm", kDigitsGpt2Steps},
    {"starcoder", kDigitsGpt2Steps},
    {"refact", kDigitsGpt2Steps},
    {"codeshell", kDigitsGpt2Steps},
    {"exaone", kDigitsGpt2Steps},
    {"minerva-7b", kDigitsGpt2Steps},
    {"command-r", kDigitsGpt2Steps, kNormalised},
    {"llama-bpe", kLlama3Steps, kIgnoreMerges | kAddsBos},
    {"llama3", kLlama3Steps, kIgnoreMerges | kAddsBos},
    {"llama-v3", kLlama3Steps, kIgnoreMerges | kAddsBos},
    {"falcon3", kLlama3Steps, kIgnoreMerges | kAddsBos},
    {"falcon-h1", kLlama3Steps, kIgnoreMerges | kAddsBos},
    {"pixtral", kLlama3Steps, kIgnoreMerges | kAddsBos},
    {"midm-2.0", kLlama3Steps, kIgnoreMerges | kAddsBos},
    {"lfm2", kLlama3Steps, kIgnoreMerges | kAddsBos},
    {"smaug-bpe", kLlama3Steps},
    {"dbrx", kLlama3Steps},
    {"chatglm-bpe", kLlama3Steps},
    {"glm4", kLlama3Steps},
    {"qwen2", kQwen2Steps, kNormalised},
    {"deepseek-r1-qwen", kQwen2Steps, kNormalised},
    {"megrez", kQwen2Steps},
    {"kormo", kQwen2Steps},
    {"stablelm2", kQwen2Steps},
    {"qwen35", kQwen35Steps, kNormalised},
    {"tekken", kTekkenSteps, kIgnoreMerges | kAddsBos},
    {"gpt-4o", kGpt4oSteps},
    {"llama4", kGpt4oSteps},
    {"kanana2", kGpt4oSteps},
    {"tiny_aya", kTinyAyaSteps, kNormalised},
    {"seed-coder", kSeedCoderSteps},
    {"minicpm5", kMinicpm5Steps, kIgnoreMerges},
    {"jais-2", kJais2Steps},
    {"falcon", kFalconSteps},
    {"deepseek-llm", kDeepseekLlmSteps},
    {"deepseek-coder", kDeepseekCoderSteps},
    {"deepseek-v3", kDeepseekV3Steps},
    {"hunyuan-dense", kDeepseekV3Steps},
    {"bloom", kBloomSteps},
    {"gpt3-finnish", kBloomSteps},
    {"poro-chat", kBloomSteps},
    {"viking", kVikingSteps},
};

constexpr struct {
  std::string_view architecture, name, other;
} kArchitectures[] = {
    {"gpt2", "gpt-2", ""},
    {"gptj", "gpt-2", ""},
    {"phi2", "gpt-2", ""},
    {"gptneox", "olmo", ""},
    {"olmo", "olmo", ""},
    {"mpt", "mpt", ""},
    {"qwen2", "qwen2", ""},
    {"qwen2moe", "qwen2", ""},
    {"qwen3", "qwen2", ""},
    {"qwen3moe", "qwen2", ""},
    {"qwen35", "qwen35", ""},
    {"phi3", "dbrx", "gpt-4o"},
    {"smollm3", "smaug-bpe", ""},
    {"olmo2", "dbrx", ""},
    {"lfm2", "lfm2", ""},
    {"granite", "refact", "dbrx"},
    {"command-r", "command-r", ""},
    {"cohere2", "command-r", ""},
    {"starcoder2", "starcoder", ""},
    {"falcon", "falcon", ""},
    {"mistral3", "tekken", ""},
    {"llama4", "llama4", ""},
    {"exaone", "exaone", ""},
    {"exaone4", "exaone4", ""},
    {"deepseek2", "deepseek-v3", ""},
    {"hunyuan-dense", "hunyuan-dense", ""},
    {"bloom", "bloom", ""},
    {"glm4", "glm4", ""},
};

}  // namespace

const PreTokenizerName* find_pre_tokenizer(std::string_view name) {
  const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) { return n.name == name; });
  return found == std::end(kNames) ? nullptr : found;
}

std::string pre_tokenizer_names() {
  std::string names;
  for (const PreTokenizerName& n : kNames) names += str(names.empty() ? "" : ", ", n.name);
  return names;
}

std::vector<PreTokenizerStep> pre_tokenizer_steps(const PreTokenizerName& name, bool add_prefix_space, std::string_view file) {
  std::vector<PreTokenizerStep> steps;
  for (const CutStep& cut : name.steps) {
    PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kSplit};
    if (cut.kind == Kind::kDigits || cut.kind == Kind::kDigitRuns) {
      step.kind = PreTokenizerStep::Kind::kDigits;
      step.individual_digits = cut.kind == Kind::kDigits;
    } else if (cut.kind == Kind::kPunctuation) {
      step.kind = PreTokenizerStep::Kind::kPunctuation;
      step.behavior = SplitBehavior::kContiguous;
    } else if (cut.kind == Kind::kSplit) {
      step.pattern = Pattern::regex(cut.expression, str(file, ": tokenizer.ggml.pre '", name.name, "'"));
    } else {
      step.kind = PreTokenizerStep::Kind::kByteLevel;
      step.add_prefix_space = add_prefix_space;
      step.use_regex = cut.kind == Kind::kGpt2Bytes;
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<std::string_view> usual_pre_tokenizers(std::string_view architecture) {
  for (const auto& a : kArchitectures) {
    if (a.architecture != architecture) continue;
    if (a.other.empty()) return {a.name};
    return {a.name, a.other};
  }
  return {};
}

namespace {

bool same_step(const PreTokenizerStep& a, const PreTokenizerStep& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case PreTokenizerStep::Kind::kByteLevel:
      return a.use_regex == b.use_regex;
    case PreTokenizerStep::Kind::kDigits:
      return a.individual_digits == b.individual_digits;
    case PreTokenizerStep::Kind::kPunctuation:
      return a.behavior == b.behavior;
    case PreTokenizerStep::Kind::kSplit: {
      // These expressions leave nothing between their matches, so that both spellings cut alike.
      const auto isolates = [](const PreTokenizerStep& s) {
        return (s.behavior == SplitBehavior::kIsolated && !s.invert) || (s.behavior == SplitBehavior::kRemoved && s.invert);
      };
      return a.pattern.is_literal() == b.pattern.is_literal() && a.pattern.source() == b.pattern.source() && isolates(a) &&
             isolates(b);
    }
    case PreTokenizerStep::Kind::kMetaspace:
      break;
  }
  return false;
}

bool matches(const PreTokenizerName& name, const TokenizerParts& parts) {
  const bool normalised = (name.rules & kNormalised) != 0;
  if (parts.normalizer.size() != (normalised ? 1 : 0)) return false;
  if (normalised && parts.normalizer[0].kind != NormalizerStep::Kind::kNfc) return false;
  if (parts.model.ignore_merges != ((name.rules & kIgnoreMerges) != 0)) return false;
  const std::vector<PreTokenizerStep> steps = pre_tokenizer_steps(name, false, parts.name);
  return std::equal(steps.begin(), steps.end(), parts.pre_tokenizer.begin(), parts.pre_tokenizer.end(), same_step);
}

}  // namespace

const PreTokenizerName* match_pre_tokenizer(const TokenizerParts& parts, const std::vector<std::string_view>& preferred) {
  for (const std::string_view name : preferred) {
    const PreTokenizerName* found = find_pre_tokenizer(name);
    if (found != nullptr && matches(*found, parts)) return found;
  }
  // "default" says less than the name behind it.
  const auto* found = std::find_if(std::begin(kNames) + 1, std::end(kNames),
                                   [&](const PreTokenizerName& name) { return matches(name, parts); });
  return found == std::end(kNames) ? nullptr : found;
}

}  // namespace kpd::text
