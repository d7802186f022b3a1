// tools: parsing that the commands share; see cli.h.
#include "cli.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "kpd/base/rng.h"
#include "kpd/base/spec.h"
#include "kpd/base/threads.h"

namespace kpd::tool {
namespace {

// Parses all of `text` as an unsigned number in `base`.
std::optional<uint64_t> whole_number(std::string_view text, int base = 10) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// a, 0xA, a^b or a^b+c.
std::optional<uint64_t> parse_power(std::string_view text) {
  if (text.starts_with("0x")) return whole_number(text.substr(2), 16);
  const size_t caret = text.find('^');
  if (caret == std::string_view::npos) return whole_number(text);
  const size_t plus = text.find('+', caret);
  const auto base = whole_number(text.substr(0, caret));
  const auto exponent = whole_number(text.substr(caret + 1, plus == std::string_view::npos ? plus : plus - caret - 1));
  const auto offset = plus == std::string_view::npos ? std::optional<uint64_t>(0) : whole_number(text.substr(plus + 1));
  if (!base || !exponent || !offset || *exponent > 63) return std::nullopt;
  uint64_t value = 1;
  for (uint64_t i = 0; i < *exponent; ++i) {
    if (__builtin_mul_overflow(value, *base, &value)) return std::nullopt;
  }
  if (__builtin_add_overflow(value, *offset, &value)) return std::nullopt;
  return value;
}

}  // namespace

CLI::Option* add(CLI::App& app, const char* name, std::string& value, const char* meta, const std::string& help) {
  return app.add_option(name, value, help)->option_text(meta);
}

CLI::Option* add(CLI::App& app, const char* name, std::vector<std::string>& values, const char* meta, const std::string& help) {
  // One value an option, so that a positional after it is not swallowed; the option itself may be repeated.
  return app.add_option(name, values, help)->option_text(meta)->expected(1)->take_all()->allow_extra_args(false);
}

CLI::Option* add(CLI::App& app, const char* name, bool& value, const std::string& help) {
  return app.add_flag(name, value, help);
}

void add_positional(CLI::App& app, const char* name, std::string& value, const std::string& help) {
  app.add_option(name, value, help)->option_text(" ");
}

void add_positional(CLI::App& app, const char* name, std::vector<std::string>& values, const std::string& help) {
  app.add_option(name, values, help)->option_text("...");
}

bool was_given(const CLI::Option* option) { return option->count() > 0; }

void describe(CLI::App& app, const std::string& text) { app.description(text); }

void require(const std::string& text, const char* option, const char* meta) {
  if (text.empty()) usage(option, *meta != 0 ? " " : "", meta, " is required");
}

uint64_t parse_count(std::string_view option, std::string_view text, uint64_t min, uint64_t max) {
  const auto value = parse_power(text);
  if (!value || *value < min || *value > max) {
    usage(option, " ", text, ": expected an integer from ", min, " to ", max, " (2^20 and 2^20+1 are understood)");
  }
  return *value;
}

double parse_real(std::string_view option, std::string_view text, double min, double max) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !(value >= min && value <= max)) {
    usage(option, " ", text, ": expected a number from ", min, " to ", max);
  }
  return value;
}

size_t parse_choice(std::string_view option, std::string_view text, std::span<const std::string_view> choices) {
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == text) return i;
  }
  std::string known;
  for (size_t i = 0; i < choices.size(); ++i) known += str(i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ", choices[i]);
  const std::string_view near = nearest_word(text, choices);
  usage(option, " ", text, ": expected ", known, near.empty() ? std::string() : str("; did you mean '", near, "'?"));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

gradient::Codec parse_codec(const std::string& text) {
  return as_usage("--codec", [&] { return gradient::Codec::parse(text); });
}

void CommonOptions::add_seed(CLI::App& app, const char* more) {
  add(app, "--seed", seed_text, "S", str("seed of all randomness; without it one comes from the system and is printed", more));
}
void CommonOptions::add_threads(CLI::App& app) {
  add(app, "-t,--threads", threads_text, "N",
      "threads (default: one a processor that this process may use, by its affinity and a container's CPU quota); the result "
      "does "
      "not depend on it");
}
void CommonOptions::add_json(CLI::App& app) { add(app, "--json", json, "print the figures as JSON, one object a line"); }

void CommonOptions::add_format(CLI::App& app, const char* more) {
  add(app, "--format", format_text, "text|csv|markdown", str("of the table (default text; csv: all digits)", more));
}

Format CommonOptions::format() const {
  constexpr std::string_view kFormats[] = {"text", "csv", "markdown"};
  const auto format = static_cast<Format>(parse_choice("--format", format_text, kFormats));
  if (json && format != Format::kText) usage("--format ", format_text, " and --json: give one of them");
  return format;
}

uint64_t fresh_seed() { return os_entropy() >> 11; }

std::optional<uint64_t> CommonOptions::given_seed() const {
  if (seed_text.empty()) return std::nullopt;
  return parse_count("--seed", seed_text, 0, ~uint64_t{0});
}

uint64_t CommonOptions::seed() const {
  if (const auto given = given_seed()) return *given;
  const uint64_t seed = fresh_seed();
  std::fprintf(stderr, "seed %llu (repeat with --seed %llu)\n", static_cast<unsigned long long>(seed),
               static_cast<unsigned long long>(seed));
  return seed;
}

int CommonOptions::threads() const {
  if (threads_text.empty()) return hardware_threads();
  return static_cast<int>(parse_count("--threads", threads_text, 1, 1024));
}

namespace {

// What users of llama.cpp type, and the option here that does it.
constexpr std::pair<std::string_view, std::string_view> kForeignNames[] = {{"--alias", "--name"},
                                                                           {"--batch-size", "--chunk"},
                                                                           {"--ctx-size", "--ctx"},
                                                                           {"--file", "--prompt-file"},
                                                                           {"--n-gen", "--generate"},
                                                                           {"--n-predict", "--max-tokens"},
                                                                           {"--n-prompt", "--prompt"},
                                                                           {"--predict", "--max-tokens"},
                                                                           {"--ubatch-size", "--chunk"},
                                                                           {"-a", "--name"},
                                                                           {"-b", "--chunk"},
                                                                           {"-cnv", "--chat"},
                                                                           {"--conversation", "--chat"},
                                                                           {"-f", "--prompt-file"},
                                                                           {"-np", "--parallel"},
                                                                           {"-s", "--seed"},
                                                                           {"-sys", "--system"},
                                                                           {"--system-prompt", "--system"},
                                                                           {"-ub", "--chunk"},
                                                                           {"--chat-template-file", "--chat-template"}};

// The name among `names` that the unknown `word` may have meant; empty: none.
std::string_view meant_option(std::string_view word, std::span<const std::string> names) {
  for (const auto& [foreign, ours] : kForeignNames) {
    if (foreign == word && std::find(names.begin(), names.end(), ours) != names.end()) return ours;
  }
  // One letter, or a part of a name: the option that starts with it, if only one does.
  const std::string part = word.starts_with("--") ? std::string(word) : str("-", word);
  const auto starts = [&](const std::string& name) { return name.starts_with(part); };
  const auto first = std::find_if(names.begin(), names.end(), starts);
  if (first != names.end() && std::find_if(first + 1, names.end(), starts) == names.end()) return *first;
  const std::string_view near = nearest_word(part, std::vector<std::string_view>(names.begin(), names.end()));
  return near.empty() && first != names.end() ? std::string_view(*first) : near;
}

}  // namespace

void check_option_names(const CLI::App& app, std::span<const std::string> args) {
  std::vector<std::string> names = {"--help"}, letters = {"-h"}, with_value;
  for (const CLI::Option* option : app.get_options()) {
    const bool takes_value = option->get_items_expected_min() > 0;
    const auto take = [&](const std::string& name, std::vector<std::string>& list) {
      list.push_back(name);
      if (takes_value) with_value.push_back(name);
    };
    for (const std::string& name : option->get_lnames()) take(str("--", name), names);
    for (const std::string& name : option->get_snames()) take(str("-", name), letters);
  }
  const auto is_in = [](const std::vector<std::string>& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--") return;
    const bool is_number = arg.size() > 1 && (std::isdigit(static_cast<unsigned char>(arg[1])) != 0 || arg[1] == '.');
    if (arg.size() < 2 || arg[0] != '-' || is_number) continue;
    // The word behind an option is its value, whatever it begins with: a prompt may be a list, `- one`.
    if (is_in(with_value, arg)) ++i;
    const std::string name = arg.substr(0, arg.find('='));
    if (is_in(names, name)) continue;
    // One letter, or with its number behind it: -t, -t4.
    const bool known_letter = is_in(letters, name.substr(0, 2));
    if (known_letter && (name.size() == 2 || std::isdigit(static_cast<unsigned char>(name[2])) != 0)) continue;
    const std::string_view near = meant_option(name, names);
    usage("unknown option ", name, near.empty() ? std::string() : str("; did you mean '", near, "'?"));
  }
}

}  // namespace kpd::tool
