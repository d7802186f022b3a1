// tools: see help.h.
#include "help.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "cli.h"

namespace kpd::tool {
namespace {

// "  NAME        text" a line each, the texts in one column.
std::string lines(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string text;
  for (const auto& [name, meaning] : entries) {
    text += str("  ", name, std::string(name.size() < 12 ? 12 - name.size() : 1, ' '), meaning, "\n");
  }
  return text;
}

}  // namespace

const GeneralHelp& general_help() {
  static const GeneralHelp help = {
      .about =
          "kpd sends vectors that many machines hold (gradients, model updates) in 0.05 to 8 bits per number\n"
          "instead of 32, and averages them within stated, measured bounds. It loads language models (GGUF files,\n"
          "Hugging Face folders), evaluates them, generates text and serves them to OpenAI's clients, on CPUs.",
      .options = {{"--help", "this text; `kpd COMMAND --help` explains a command"},
                  {"--version", "the version, and the instruction sets of this machine"}},
      .environment = {{"KPD_ISA",
                       "the instruction set to use, e.g. avx2 or scalar; `kpd --version` lists those of this machine"}},
      .exit_codes =
          {{"0", "done"}, {"1", "failed"}, {"2", "wrong usage"}, {"3", "an input's content is wrong"}, {"130", "interrupted"}},
      .example = {"kpd mean --synthetic lognormal --dim 2^16 --clients 10 --trials 5 --codec eden:bits=1 --seed 1"}};
  return help;
}

std::string general_help_text() {
  const GeneralHelp& help = general_help();
  std::vector<std::pair<std::string, std::string>> table;
  for (const Command& command : commands()) table.emplace_back(command.name, command.summary);
  std::string text = str("Usage: kpd COMMAND [OPTIONS]\n\n", help.about, "\n\nCommands:\n", lines(table), "\nOptions:\n",
                         lines(help.options), "\nEnvironment:\n", lines(help.environment), "\nExit codes:");
  for (const auto& [code, meaning] : help.exit_codes)
    text += str(code == help.exit_codes[0].first ? " " : ", ", code, " ", meaning);
  text += ".\n\nExample:\n";
  for (const std::string& line : help.example) text += str("  ", line, "\n");
  return text;
}

std::function<int()> set_up(const Command& command, CLI::App& app) {
  app.name(str("kpd ", command.name));
  app.description(command.summary);
  app.set_help_flag("-h,--help", "this text");
  app.get_formatter()->column_width(30);
  std::string footer = "\nExample:";
  for (const std::string& line : command.example) footer += str("\n  ", line);
  app.footer(footer);
  return command.setup(app);
}

}  // namespace kpd::tool
