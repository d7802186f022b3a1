// llm: an object of config.json with typed access. It remembers which keys were asked for: what is left is a key that nothing
// reads (known_names.h says which of those do not matter). Private.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace kpd::llm {

// Thread-compatible. `object` and `file` must outlive it; objects of one file share `asked`, which holds keys with the objects
// that they stand in ("rope_scaling.factor"). Every refusal is an Error(kCorruptData) that names file and key.
class ConfigObject {
 public:
  ConfigObject(const io::Json& object, std::string_view file, std::set<std::string>& asked, std::string prefix = "")
      : object_(object), file_(file), asked_(asked), prefix_(std::move(prefix)) {}

  std::string_view file() const { return file_; }
  bool has(const char* key) const;       // and is not null
  bool mentions(const char* key) const;  // null counts
  bool filled(const char* key) const;    // has it, and it is no empty list, object or text
  bool is_object(const char* key) const;
  // Asked for too: keys that say nothing beside those that are read.
  void known(std::initializer_list<const char*> keys) const;

  // Without `otherwise` the key must be there.
  size_t size(const char* key) const;
  size_t size(const char* key, size_t otherwise) const { return has(key) ? size(key) : otherwise; }
  double real(const char* key) const;
  double real(const char* key, double otherwise) const { return has(key) ? real(key) : otherwise; }
  bool boolean(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;
  ConfigObject object(const char* key) const;
  const io::Json& list(const char* key, size_t n) const;  // of n values; 0: of any number
  std::vector<float> reals(const char* key) const;        // all positive
  bool holds_objects(const char* key) const;              // an object whose first value is one

  // Throws Error(kUnsupported) for the first key, here or in an object that was asked for, that nobody asked for and that may
  // change results.
  void refuse_unknown() const;

  [[noreturn]] void wrong(const char* key, const std::string& expected) const;
  [[noreturn]] void missing(const char* key, const char* expected) const;

 private:
  const io::Json& object_;
  std::string_view file_;
  std::set<std::string>& asked_;
  std::string prefix_;
};

}  // namespace kpd::llm
