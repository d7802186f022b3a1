// tools: what the program's own tables say of each command, for man pages and completions. `kpd_pages FOLDER` runs when kpd is
// built and writes them, so that they say what `kpd COMMAND --help` of the same build says. Nothing here is part of the program
// kpd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kpd::pages {

// What may follow an option, or stand without one.
enum class Kind : uint8_t {
  kNone,     // a flag
  kAny,      // nothing that could be proposed
  kFile,     // a file or folder
  kChoices,  // one of `choices`
};

struct Option {
  std::vector<std::string> names;  // {"-t", "--threads"}; one word without dashes of what stands without an option
  std::string value;               // N, FILE, text|csv|markdown; empty of a flag
  std::string help;
  Kind kind = Kind::kNone;
  bool repeats = false;
  std::vector<std::string> choices;
};

struct Page {
  std::string name, summary, description;  // description: the same as summary unless the command has more to say
  std::vector<Option> positionals, options;
  std::vector<std::string> example;
  // The command is in another program or not in this build: what options it has is known when it is run.
  bool elsewhere = false;
};

// With blanks between.
std::string joined(const std::vector<std::string>& words);

// All commands of the program, in the order of `kpd --help`.
std::vector<Page> all_pages();

// roff (man(7)): the page kpd(1), and kpd-COMMAND(1).
std::string man_page(const std::vector<Page>& pages);
std::string man_page(const Page& page);

// The scripts that complete command lines of kpd. They need nothing but their shell.
std::string bash_completion(const std::vector<Page>& pages);
std::string zsh_completion(const std::vector<Page>& pages);

}  // namespace kpd::pages
