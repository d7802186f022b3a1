// base: parser of METHOD[:key=value[,key=value...]] and the wording of its errors.
#include "kpd/base/spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kpd/base/error.h"

namespace kpd {
namespace {

constexpr size_t kMaxSpecBytes = 1024;

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_word_char(char c) { return is_alphanumeric(c) || c == '+' || c == '_' || c == '-'; }

// One line whatever the text holds.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view nearest = nearest_word(word, known);
  return nearest.empty() ? std::string() : str("; did you mean '", nearest, "'?");
}

std::string list(std::span<const std::string_view> words) {
  std::string out;
  for (const std::string_view word : words) out += str(out.empty() ? "" : ", ", word);
  return out;
}

}  // namespace

Spec Spec::parse(std::string_view text) {
  Spec spec;
  if (text.size() > kMaxSpecBytes) {
    fail(ErrorCode::kInvalidArgument, "spec of ", text.size(), " characters, expected at most ", kMaxSpecBytes);
  }
  spec.text_ = text;
  size_t pos = 0;
  const auto word = [&](const char* what) {
    const size_t begin = pos;
    while (pos < text.size() && is_word_char(text[pos])) ++pos;
    if (pos == begin || !is_alphanumeric(text[begin])) {
      spec.fail_at(begin + 1, str("expected ", what, " (a-z, 0-9, then also + _ -)"));
    }
    return std::string(text.substr(begin, pos - begin));
  };

  spec.method_ = word("a method");
  if (pos == text.size()) return spec;
  if (text[pos] != ':') spec.fail_at(pos + 1, str("expected ':' or the end after method '", spec.method_, "'"));
  do {
    ++pos;
    const size_t key_begin = pos;
    Item item;
    item.key = word("a key");
    if (pos == text.size() || text[pos] != '=') {
      const bool is_number = item.key.find_first_not_of("0123456789") == std::string::npos;
      if (is_number) spec.fail_at(key_begin + 1, str("expected key=value, for example bits=", item.key));
      spec.fail_at(pos + 1, str("expected '=' after key '", item.key, "'"));
    }
    if (spec.has(item.key)) spec.fail_at(key_begin + 1, str("key '", item.key, "' is given twice"));
    const size_t value_begin = ++pos;
    item.position = value_begin + 1;
    while (pos < text.size() && text[pos] != ',' && text[pos] != '=') ++pos;
    item.value = text.substr(value_begin, pos - value_begin);
    if (item.value.empty()) spec.fail_at(item.position, str("expected a value for key '", item.key, "'"));
    if (pos < text.size() && text[pos] == '=') spec.fail_at(pos + 1, "expected ',' or the end after a value");
    spec.items_.push_back(std::move(item));
  } while (pos < text.size());
  return spec;
}

void Spec::check_keys(std::span<const std::string_view> known) const {
  for (const Item& item : items_) {
    if (std::find(known.begin(), known.end(), item.key) != known.end()) continue;
    const std::string takes = known.empty() ? "takes no keys" : "takes " + list(known);
    fail_at(item.position - item.key.size() - 1,
            str("unknown key '", item.key, "'", did_you_mean(item.key, known), " (", method_, " ", takes, ")"));
  }
}

const Spec::Item* Spec::find(std::string_view key) const {
  for (const Item& item : items_) {
    if (item.key == key) return &item;
  }
  return nullptr;
}

bool Spec::has(std::string_view key) const { return find(key) != nullptr; }

double Spec::number(std::string_view key, double fallback, double min, double max) const {
  const Item* item = find(key);
  if (item == nullptr) return fallback;
  double v = 0;
  const char* end = item->value.data() + item->value.size();
  const auto [ptr, error] = std::from_chars(item->value.data(), end, v);
  if (error != std::errc() || ptr != end || !(v >= min && v <= max)) {
    fail_at(item->position, str(key, "=", printable(item->value), ", expected a number from ", min, " to ", max));
  }
  return v;
}

int64_t Spec::integer(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
  const Item* item = find(key);
  if (item == nullptr) return fallback;
  int64_t v = 0;
  const char* end = item->value.data() + item->value.size();
  const auto [ptr, error] = std::from_chars(item->value.data(), end, v);
  if (error != std::errc() || ptr != end || v < min || v > max) {
    fail_at(item->position, str(key, "=", printable(item->value), ", expected an integer from ", min, " to ", max));
  }
  return v;
}

size_t Spec::choice(std::string_view key, size_t fallback, std::span<const std::string_view> choices) const {
  const Item* item = find(key);
  if (item == nullptr) return fallback;
  const auto found = std::find(choices.begin(), choices.end(), item->value);
  if (found == choices.end()) {
    fail_at(item->position,
            str(key, "=", printable(item->value), ", expected one of ", list(choices), did_you_mean(item->value, choices)));
  }
  return static_cast<size_t>(found - choices.begin());
}

void Spec::fail_at(size_t position, const std::string& text) const {
  fail(ErrorCode::kInvalidArgument, "spec '", printable(text_), "', character ", position, ": ", text);
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = SIZE_MAX;
  std::vector<size_t> before, previous, current;
  for (const std::string_view candidate : candidates) {
    // Optimal string alignment: insert, delete, replace, swap of neighbours cost one each.
    const size_t n = candidate.size();
    if (word.size() > 2 * n + 2) continue;
    previous.assign(n + 1, 0);
    for (size_t j = 0; j <= n; ++j) previous[j] = j;
    current = previous;
    for (size_t i = 1; i <= word.size(); ++i) {
      current[0] = i;
      for (size_t j = 1; j <= n; ++j) {
        current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (word[i - 1] != candidate[j - 1])});
        if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1]) {
          current[j] = std::min(current[j], before[j - 2] + 1);
        }
      }
      before = previous;
      previous = current;
    }
    const size_t distance = previous[n];
    const size_t allowed = std::max<size_t>(1, std::max(n, word.size()) / 3);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace kpd
