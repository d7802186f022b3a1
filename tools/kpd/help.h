// tools: what `kpd --help` and `kpd COMMAND --help` say. main.cc prints it; pages/ makes the man pages and the shells'
// completions of the same tables.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"

namespace kpd::tool {

// The parts of `kpd --help` beside the table of commands: pairs are a name and what it means.
struct GeneralHelp {
  std::string about;
  std::vector<std::pair<std::string, std::string>> options, environment, exit_codes;
  std::vector<std::string> example;
};
const GeneralHelp& general_help();

// `kpd --help`.
std::string general_help_text();

// Gives `app` all that `kpd COMMAND --help` shows and returns what runs the command after the command line was parsed.
std::function<int()> set_up(const Command& command, CLI::App& app);

}  // namespace kpd::tool
