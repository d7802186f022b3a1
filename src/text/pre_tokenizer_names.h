// text: how a text is cut into words before byte-pair encoding, by the names that GGUF files give it (tokenizer.ggml.pre). The
// steps are those of the tokenizer.json of the model after which a name is called; a name whose steps are not known is not
// here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_parts.h"

namespace kpd::text {

struct CutStep {
  enum class Kind {
    kDigits,       // every digit for itself
    kDigitRuns,    // runs of digits
    kPunctuation,  // runs of punctuation
    kSplit,        // at the matches of `expression`
    kGpt2Bytes,    // GPT-2's words, their bytes spelled
    kBytes,        // bytes spelled
  } kind;
  std::string_view expression{};
};

enum WordRule : unsigned {
  kNormalised = 1,    // the text is in normal form C before it is cut
  kIgnoreMerges = 2,  // a word that is a token is that token
  kAddsBos = 4,       // a text begins with BOS where the file does not say
};

struct PreTokenizerName {
  std::string_view name;
  std::span<const CutStep> steps;
  unsigned rules = 0;  // WordRule
};

// Null if the name is unknown.
const PreTokenizerName* find_pre_tokenizer(std::string_view name);
std::string pre_tokenizer_names();  // all, with commas between

// `file` opens the error of an expression that does not compile.
std::vector<PreTokenizerStep> pre_tokenizer_steps(const PreTokenizerName& name, bool add_prefix_space, std::string_view file);

// The name whose steps and rules are those of `parts`, one of `preferred` where one is; null if there is none.
const PreTokenizerName* match_pre_tokenizer(const TokenizerParts& parts, const std::vector<std::string_view>& preferred);

// What files of an architecture name, the most frequent first; empty if this table does not know. Files of before the key hold
// no name; taking them for GPT-2's is then known to be wrong unless that is GPT-2's way.
std::vector<std::string_view> usual_pre_tokenizers(std::string_view architecture);

}  // namespace kpd::text
