// train: speaking roles as clients; see include/kpd/train/char_lstm.h. Torch-free.
#include <algorithm>
#include <array>
#include <fstream>

#include "io/json.h"
#include "kpd/base/error.h"
#include "kpd/train/char_lstm.h"

namespace kpd::train {
namespace {

// The vocabulary of TensorFlow Federated's Shakespeare; the order is kpd's own.
constexpr std::string_view kCharacters =
    "\n\r !\"#$%&'()*,-./0123456789:;?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz";
static_assert(kCharacters.size() == 86 && kCharacters.size() + 4 == kSymbols);

constexpr std::array<uint8_t, 256> make_symbols() {
  std::array<uint8_t, 256> symbols{};
  symbols.fill(kOov);
  for (size_t i = 0; i < kCharacters.size(); ++i) symbols[static_cast<uint8_t>(kCharacters[i])] = static_cast<uint8_t>(4 + i);
  return symbols;
}
constexpr std::array<uint8_t, 256> kSymbolOf = make_symbols();

// Appends the examples of one text.
void append(std::string_view text, std::vector<uint8_t>& examples) {
  std::vector<uint8_t> symbols = {kBos};
  for (const char c : text) symbols.push_back(symbol_of(c));
  symbols.push_back(kEos);
  for (size_t at = 0; at + 1 < symbols.size(); at += kSequence) {
    const size_t n = std::min<size_t>(kSequence + 1, symbols.size() - at);
    examples.insert(examples.end(), symbols.begin() + static_cast<std::ptrdiff_t>(at),
                    symbols.begin() + static_cast<std::ptrdiff_t>(at + n));
    examples.resize(examples.size() + (kSequence + 1 - n), kPad);
  }
}

std::string text_of_line(const std::string& line, const std::string& where) {
  const auto json = io::Json::parse(line, nullptr, false);
  const auto is_text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  if (!json.is_object() || !is_text("client") || !is_text("text")) {
    fail(ErrorCode::kCorruptData, where, R"(: expected a JSON object {"client": "...", "text": "..."})");
  }
  return json["text"].get<std::string>();
}

// Every k-th of `examples`, as many as `most`.
std::vector<uint8_t> thin(const std::vector<uint8_t>& examples, uint64_t most) {
  const uint64_t n = examples.size() / (kSequence + 1);
  if (n <= most) return examples;
  std::vector<uint8_t> kept;
  for (uint64_t i = 0; i < most; ++i) {
    const auto first = examples.begin() + static_cast<std::ptrdiff_t>(i * n / most * (kSequence + 1));
    kept.insert(kept.end(), first, first + kSequence + 1);
  }
  return kept;
}

}  // namespace

uint8_t symbol_of(char c) { return kSymbolOf[static_cast<uint8_t>(c)]; }

TextData load_text_data(const std::string& path, uint64_t max_test) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kIo, path, ": cannot be read; expected a JSON-lines file of speaking roles");
  TextData data;
  std::vector<uint8_t> test;
  std::string line;
  for (uint64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string text = text_of_line(line, str(path, ": line ", number));
    const size_t cut = text.size() - text.size() / 5;
    const uint64_t first = data.train_examples();
    append(std::string_view(text).substr(0, cut), data.train);
    append(std::string_view(text).substr(cut), test);
    std::vector<uint32_t>& own = data.clients.emplace_back();
    for (uint64_t i = first; i < data.train_examples(); ++i) own.push_back(static_cast<uint32_t>(i));
  }
  if (file.bad()) fail(ErrorCode::kIo, path, ": cannot be read to its end");
  if (data.clients.empty()) fail(ErrorCode::kCorruptData, path, ": holds no role; expected a JSON object a line");
  data.test = thin(test, max_test);
  return data;
}

}  // namespace kpd::train
