// llm: typed access to config.json.
#include "llm/config_object.h"

#include <cmath>

#include "kpd/base/error.h"
#include "llm/known_names.h"

namespace kpd::llm {
namespace {

std::string short_text(const io::Json& value) {
  std::string text = value.dump(-1, ' ', true, io::Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

}  // namespace

bool ConfigObject::mentions(const char* key) const {
  asked_.insert(prefix_ + key);
  return object_.contains(key);
}

bool ConfigObject::has(const char* key) const { return mentions(key) && !object_[key].is_null(); }

bool ConfigObject::filled(const char* key) const { return has(key) && !object_[key].empty() && object_[key] != ""; }

bool ConfigObject::is_object(const char* key) const { return has(key) && object_[key].is_object(); }

void ConfigObject::known(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) asked_.insert(prefix_ + key);
}

size_t ConfigObject::size(const char* key) const {
  if (!has(key)) missing(key, "an integer");
  const io::Json& v = object_[key];
  if (!v.is_number_unsigned()) wrong(key, "an integer");
  return v.get<size_t>();
}

double ConfigObject::real(const char* key) const {
  if (!has(key)) missing(key, "a number");
  const io::Json& v = object_[key];
  if (!v.is_number() || !std::isfinite(v.get<double>())) wrong(key, "a number");
  return v.get<double>();
}

bool ConfigObject::boolean(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!object_[key].is_boolean()) wrong(key, "true or false");
  return object_[key].get<bool>();
}

std::string ConfigObject::text(const char* key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!object_[key].is_string()) wrong(key, "text");
  return object_[key].get<std::string>();
}

ConfigObject ConfigObject::object(const char* key) const {
  if (!has(key)) missing(key, "an object");
  if (!object_[key].is_object()) wrong(key, "an object");
  return {object_[key], file_, asked_, str(prefix_, key, ".")};
}

bool ConfigObject::holds_objects(const char* key) const {
  return has(key) && object_[key].is_object() && !object_[key].empty() && object_[key].begin()->is_object();
}

const io::Json& ConfigObject::list(const char* key, size_t n) const {
  if (!has(key)) missing(key, "a list");
  const io::Json& v = object_[key];
  if (!v.is_array() || (n != 0 && v.size() != n)) wrong(key, n != 0 ? str("a list of ", n) : "a list");
  return v;
}

std::vector<float> ConfigObject::reals(const char* key) const {
  std::vector<float> values;
  for (const io::Json& v : list(key, 0)) {
    if (!v.is_number() || !(v.get<double>() > 0)) wrong(key, "a list of positive numbers");
    values.push_back(v.get<float>());
  }
  return values;
}

void ConfigObject::refuse_unknown() const {
  for (const auto& [key, value] : object_.items()) {
    if (asked_.contains(prefix_ + key)) {
      if (value.is_object()) ConfigObject(value, file_, asked_, str(prefix_, key, ".")).refuse_unknown();
      continue;
    }
    if (is_harmless_config(key, value)) continue;
    fail(ErrorCode::kUnsupported, file_, ": ", prefix_, key.substr(0, 80), " is ", short_text(value),
         "; kpd does not know this key, and it may change results; if it does not, delete it from the file");
  }
}

void ConfigObject::wrong(const char* key, const std::string& expected) const {
  // The value may stand in another part of the file.
  const auto it = object_.find(key);
  fail(ErrorCode::kCorruptData, file_, ": ", prefix_, key, " is ",
       it == object_.end() ? "not as it should be" : short_text(*it), ", expected ", expected);
}

void ConfigObject::missing(const char* key, const char* expected) const {
  fail(ErrorCode::kCorruptData, file_, ": ", prefix_, key, " is missing, expected ", expected);
}

}  // namespace kpd::llm
