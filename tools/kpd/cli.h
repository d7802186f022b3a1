// tools: what every command shares: usage errors, number parsing, --seed, --threads, --json. Values reach the commands as
// text and are parsed here, so that every bad value gets a sentence that names the option and what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/gradient/codec.h"

// CLI11 is included where the options are parsed only (cli.cc, main.cc): it takes seconds to compile.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kpd::tool {

// Exit codes of the program.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;       // unreadable path, full disk, missing component, a defect of kpd
inline constexpr int kExitUsage = 2;        // the command line
inline constexpr int kExitContent = 3;      // what stands in an input
inline constexpr int kExitInterrupt = 130;  // Ctrl-C

// The command line makes no sense; the text names the option.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
template <class... Args>
[[noreturn]] void usage(const Args&... args) {
  throw UsageError(str(args...));
}

// Runs fn; an Error(kInvalidArgument) it throws becomes a UsageError "OPTION: text".
template <class Fn>
auto as_usage(std::string_view option, Fn&& fn) {
  try {
    return fn();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInvalidArgument) usage(option, ": ", e.what());
    throw;
  }
}

// Options are long: add(app, "--dim", variable, "D", "elements of each vector"). Those few that users of llama.cpp type by one
// letter have both names: "-t,--threads".
CLI::Option* add(CLI::App& app, const char* name, std::string& value, const char* meta, const std::string& help);
CLI::Option* add(CLI::App& app, const char* name, std::vector<std::string>& values, const char* meta, const std::string& help);
CLI::Option* add(CLI::App& app, const char* name, bool& value, const std::string& help);
// What stands without an option's name, one or several.
void add_positional(CLI::App& app, const char* name, std::string& value, const std::string& help);
void add_positional(CLI::App& app, const char* name, std::vector<std::string>& values, const std::string& help);
// Whether the option was given, be it as an empty text.
bool was_given(const CLI::Option* option);
// Replaces the command's description in its --help.
void describe(CLI::App& app, const std::string& text);

// Throws UsageError unless `text` was given.
void require(const std::string& text, const char* option, const char* meta);

// An integer as 1048576, 0x100000, 2^20 or 2^20+1, within [min, max].
uint64_t parse_count(std::string_view option, std::string_view text, uint64_t min, uint64_t max);
// Decimal number within [min, max].
double parse_real(std::string_view option, std::string_view text, double min, double max);
// Index in `choices`; names the nearest one.
size_t parse_choice(std::string_view option, std::string_view text, std::span<const std::string_view> choices);
std::vector<std::string> split(std::string_view text, char separator);

inline constexpr const char* kDefaultCodec = "eden:bits=1";  // of every command that has --codec
gradient::Codec parse_codec(const std::string& text);

enum class Format : uint8_t { kText, kCsv, kMarkdown };  // of tables (table.h)
// A seed from the operating system, below 2^53: readers of JSON that hold numbers as doubles keep it.
uint64_t fresh_seed();

// The options that mean the same in every command.
struct CommonOptions {
  std::string seed_text, threads_text, format_text = "text";
  bool json = false;

  void add_seed(CLI::App& app, const char* more = "");
  void add_threads(CLI::App& app);
  void add_json(CLI::App& app);
  void add_format(CLI::App& app, const char* more = "");
  // --format; throws UsageError where --json is given as well.
  Format format() const;
  // --seed, or fresh_seed(), which is then printed on stderr.
  uint64_t seed() const;
  std::optional<uint64_t> given_seed() const;
  // --threads, or one a processor.
  int threads() const;
};

// Pointless or unknown options would be swallowed as values otherwise: checks every word of `args` that starts with '-', but
// for the values of options, against the options of `app` and names the nearest, or the one that has another name in llama.cpp.
void check_option_names(const CLI::App& app, std::span<const std::string> args);

}  // namespace kpd::tool
