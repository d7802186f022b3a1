// tools: the program `kpd`. Finds the command, turns errors into one line on stderr and an exit code:
// 0 done, 1 failed, 2 usage, 3 an input's content is wrong, 130 Ctrl-C.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>

#include <CLI/CLI.hpp>

#include "cli.h"
#include "commands.h"
#include "delegate.h"
#include "help.h"
#include "kpd/base/cpu.h"
#include "kpd/base/spec.h"
#include "kpd/base/version.h"
#include "signals.h"

namespace kpd::tool {
namespace {

const Command& find_command(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const std::string_view near = nearest_word(name, names);
  usage("unknown command ", name,
        near.empty() ? std::string("; `kpd --help` lists them") : str("; did you mean '", near, "'?"));
}

int print_text(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

int run_command(const Command& command, std::vector<std::string> args) {
  if (!command.program.empty()) run_instead(command.program, command.name, args);
  CLI::App app;
  const std::function<int()> run = set_up(command, app);
  for (const std::string& arg : args) {
    if (arg == "--") break;
    if (arg == "--help" || arg == "-h") return print_text(app.help());
  }
  if (command.missing_component) return run();
  // llama.cpp's short names of more than one letter, which the parser has no form for.
  for (std::string& arg : args) {
    if (arg == "--") break;
    if (arg == "-ctk" || arg == "-ctv") arg = str("--cache-type-", arg.back());
  }
  check_option_names(app, args);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ArgumentMismatch& e) {
    // CLI11's words are "--name: 1 required TEXT missing" and "--name: At Most 1 required but received 2".
    const std::string text = e.what();
    const std::string name = text.substr(0, text.find(':'));
    usage(name, text.ends_with("missing") ? ": a value is missing behind it" : ": given more than once; give it once");
  } catch (const CLI::ParseError& e) {
    usage(e.what());
  }
  return run();
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:  // of an input: what the command line says was checked before
    case ErrorCode::kCorruptData:
    case ErrorCode::kUnsupported:
    case ErrorCode::kLimitExceeded:
    case ErrorCode::kMismatch:
      return kExitContent;
    case ErrorCode::kCancelled:
      return kExitInterrupt;
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
    case ErrorCode::kOutOfMemory:
      break;
  }
  return kExitFailed;
}

int run_help(const std::string& name) {
  if (name == "help") return print_text(general_help_text());
  arguments() = {"--help"};
  return run_command(find_command(name), arguments());
}

std::string version_text() {
  std::string isas;
  for (const std::string& isa : available_isas()) isas += str(isas.empty() ? "" : ", ", isa);
  return str("kpd ", kVersion, "\ninstruction sets of this machine, best first: ", isas, "\n");
}

int run_program(const std::vector<std::string>& args) {
  if (args.empty()) usage("a command is missing; `kpd --help` lists them");
  const bool asks = args[0] == "--help" || args[0] == "-h" || args[0] == "help";
  if (asks) return args.size() == 1 || args[1].starts_with("-") ? print_text(general_help_text()) : run_help(args[1]);
  if (args[0] == "--version" || args[0] == "-V") return print_text(version_text());
  if (args[0].starts_with("-")) {
    constexpr std::string_view kNames[] = {"--help", "--version"};
    const std::string_view near = nearest_word(args[0], kNames);
    usage("unknown option ", args[0],
          near.empty() ? std::string("; a command comes first, see `kpd --help`") : str("; did you mean '", near, "'?"));
  }
  const Command& command = find_command(args[0]);
  try {
    as_usage("KPD_ISA", [] { return active_isa(); });
  } catch (const Error& e) {
    usage("KPD_ISA: ", e.what());
  }
  arguments().assign(args.begin() + 1, args.end());
  return run_command(command, arguments());
}

// A standard handle that is closed would be given to the next file or socket, and what is printed would go there.
void keep_standard_handles() {
  for (const int handle : {0, 1, 2}) {
    if (fcntl(handle, F_GETFD) >= 0) continue;
    // Output that nobody can read fails, as it did; notes are not missed.
    const int opened = open("/dev/null", handle == 2 ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != handle) close(opened);
  }
}

}  // namespace
}  // namespace kpd::tool

int main(int argc, char** argv) {
  using namespace kpd::tool;
  keep_standard_handles();
  install_signal_handlers();
  const std::vector<std::string> args(argv + 1, argv + std::max(argc, 1));
  const std::string name = args.empty() || args[0].starts_with("-") ? "kpd" : kpd::str("kpd ", args[0]);
  int code = kExitFailed;
  std::string text;
  try {
    code = run_program(args);
  } catch (const UsageError& e) {
    code = kExitUsage;
    text = e.what();
  } catch (const kpd::Error& e) {
    code = exit_code(e.code());
    text = e.what();
  } catch (const std::bad_alloc&) {
    text = "out of memory";
  } catch (const std::exception& e) {
    text = e.what();
  }
  if (!text.empty()) std::fprintf(stderr, "%s: %s\n", name.c_str(), text.c_str());
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == kExitOk) {
    std::fprintf(stderr, "%s: cannot write to standard output\n", name.c_str());
    code = kExitFailed;
  }
  return code;
}
