// tools: see pages.h. What a command's options are is asked of CLI11, which the program itself parses them by.
#include "pages.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "cli.h"
#include "commands.h"
#include "help.h"
#include "kpd/base/error.h"
#include "kpd/gradient/codec.h"

namespace kpd::pages {
namespace {

// By the words that --help shows for values: FILE, FILE.png, MODEL2, DIR ...
bool names_a_file(const std::string& value) {
  static const std::vector<std::string> words = {"FILE", "PATH", "DIR", "MODEL", "IN", "OUT"};
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    if (!value.starts_with(word)) return false;
    return value.size() == word.size() || value[word.size()] == '.' || value[word.size()] == '2' || value[word.size()] == ' ';
  });
}

// text|csv|markdown
bool is_list_of_words(const std::string& value) {
  return value.find('|') != std::string::npos && std::all_of(value.begin(), value.end(), [](char c) {
           return c == '|' || c == '-' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const gradient::MethodRow& row : gradient::methods()) names.emplace_back(row.name);
  return names;
}

void classify(Option& option, const std::string& value) {
  option.kind = Kind::kAny;
  const std::string& name = option.names.back();
  if (is_list_of_words(value)) {
    option.kind = Kind::kChoices;
    option.choices = tool::split(value, '|');
  } else if (name == "CODEC" || name == "--codec" || name == "--second") {
    option.kind = Kind::kChoices;
    option.choices = codec_names();
  } else if (names_a_file(value) || name == "--chat-template") {
    option.kind = Kind::kFile;
  }
}

Option read_option(const CLI::Option& from) {
  Option option;
  option.help = from.get_description();
  option.repeats = from.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll && from.get_items_expected_max() > 0;
  if (from.get_positional()) {
    option.names = {from.get_name(true, false)};
    option.value = option.names[0];
    option.repeats = from.get_option_text() == "...";
    classify(option, option.value);
    return option;
  }
  for (const std::string& name : from.get_snames()) option.names.push_back(str("-", name));
  for (const std::string& name : from.get_lnames()) option.names.push_back(str("--", name));
  if (from.get_items_expected_max() > 0) {
    option.value = from.get_option_text();
    classify(option, option.value);
  }
  return option;
}

Page read_page(const tool::Command& command) {
  CLI::App app;
  tool::set_up(command, app);
  Page page{.name = command.name,
            .summary = command.summary,
            .description = app.get_description(),
            .positionals = {},
            .options = {},
            .example = command.example,
            .elsewhere = command.missing_component || !command.program.empty()};
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? page.positionals : page.options).push_back(read_option(*option));
  }
  return page;
}

}  // namespace

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += str(text.empty() ? "" : " ", word);
  return text;
}

std::vector<Page> all_pages() {
  std::vector<Page> pages;
  for (const tool::Command& command : tool::commands()) pages.push_back(read_page(command));
  return pages;
}

}  // namespace kpd::pages
