// text: checked access to a parsed JSON file of a tokenizer. Every refusal names the file and the path of the part in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/json.h"
#include "text/tokenizer_parts.h"

namespace kpd::text {

// A value and where it stands ("tokenizer.json: model.vocab").
class JsonPart {
 public:
  JsonPart(const io::Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const io::Json& value() const { return *value_; }
  const std::string& where() const { return where_; }
  bool is_null() const { return value_->is_null(); }

  // The member; a JSON null if it is absent. Throws if this is no object.
  JsonPart member(const char* key) const;
  JsonPart item(size_t index) const;
  size_t size() const { return value_->size(); }

  // Throw Error(kCorruptData) if the value is of another kind; `absent` is for null.
  const std::string& text() const;
  std::string text_or(std::string_view absent) const;
  bool boolean_or(bool absent) const;
  uint64_t number() const;
  void expect_array() const;
  // A text of one character, in UTF-8.
  std::string one_char() const;

  [[noreturn]] void corrupt(const std::string& expected) const;
  [[noreturn]] void unsupported(const std::string& expected) const;

 private:
  const io::Json* value_;
  std::string where_;
};

// {"String": ...} or {"Regex": ...}
Pattern read_pattern(const JsonPart& part);

// The parts of tokenizer.json beside the model, into `parts`. The list of added tokens comes after the model: their ids are
// found in its vocabulary.
void read_normalizer(const JsonPart& part, std::vector<NormalizerStep>& steps);
void read_pre_tokenizer(const JsonPart& part, std::vector<PreTokenizerStep>& steps);
void read_post_processor(const JsonPart& part, TokenizerParts& parts);
void read_decoder(const JsonPart& part, TokenizerParts& parts);

}  // namespace kpd::text
