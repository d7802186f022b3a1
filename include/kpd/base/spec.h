// base: the spec grammar that names every method of the program:  METHOD[:key=value[,key=value...]]
//
// METHOD and key: [a-z0-9][a-z0-9+_-]*; value: any characters but ',' and '='. Errors are Error(kInvalidArgument) and name the
// position (1-based character) and, for an unknown method, key or choice, the nearest known one. "METHOD:BITS" with a bare
// number is not accepted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpd {

class Spec {
 public:
  struct Item {
    std::string key, value;
    size_t position;  // of the value, 1-based, in text()
  };

  static Spec parse(std::string_view text);

  const std::string& text() const { return text_; }
  const std::string& method() const { return method_; }
  const std::vector<Item>& items() const { return items_; }

  // Throws unless every key is one of `known`; names the position and the nearest known key.
  void check_keys(std::span<const std::string_view> known) const;

  // Typed access; `fallback` where the key is absent. Out-of-range or malformed values throw, naming position, range and value.
  double number(std::string_view key, double fallback, double min, double max) const;
  int64_t integer(std::string_view key, int64_t fallback, int64_t min, int64_t max) const;
  // Index of the value in `choices`.
  size_t choice(std::string_view key, size_t fallback, std::span<const std::string_view> choices) const;
  bool has(std::string_view key) const;
  const Item* find(std::string_view key) const;

  [[noreturn]] void fail_at(size_t position, const std::string& text) const;

 private:
  std::string text_, method_;
  std::vector<Item> items_;
};

// The candidate with the smallest edit distance to `word` if it is close enough to be a typo, else "".
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace kpd
