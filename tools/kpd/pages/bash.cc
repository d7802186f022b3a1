// tools: the completion script for bash. What is a file is left to readline, which knows about quotes and blanks; the script
// says where a file is wanted and where nothing can be proposed.
#include <map>

#include "help.h"
#include "kpd/base/error.h"
#include "pages.h"

namespace kpd::pages {
namespace {

constexpr const char* kHead = R"bash(# bash completion of kpd; written by kpd_pages of the program's own tables.

# _kpd_words WORDS: those that the current word begins.
_kpd_words() {
  compopt +o default 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word")
}

# The options of a command that another program has, which is asked.
_kpd_ask() {
  "${COMP_WORDS[0]/#\~/$HOME}" "$verb" --help 2>/dev/null | sed -nE 's/^ +(-[a-z],)?(--[a-z-]+)( .*|$)/\2/p'
}

_kpd() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} options='' values=''
  COMPREPLY=()
  # bash parts words at = and at colons: --format=csv is three, eden:bits=1 five.
  if [[ $word == = ]]; then
    word=''
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if [[ $word == : || $before == : ]]; then
    _kpd_words ''
    return
  fi
)bash";

constexpr const char* kTail = R"bash(  if [[ $word == -* ]]; then
    _kpd_words "$options"
  elif [[ $values != FILE ]]; then
    _kpd_words "$values"
  fi
}
complete -o default -F _kpd kpd kpd-mpi
)bash";

// The lines that answer what follows an option of this page; options of one answer share a line.
std::string values_of(const Page& page) {
  std::map<std::string, std::string> patterns;  // answer -> the options it is for
  for (const Option& option : page.options) {
    if (option.kind == Kind::kNone) continue;
    const std::string answer = option.kind == Kind::kFile      ? "return ;;"
                               : option.kind == Kind::kChoices ? str("_kpd_words '", joined(option.choices), "'; return ;;")
                                                               : "_kpd_words ''; return ;;";
    for (const std::string& name : option.names) patterns[answer] += str(patterns[answer].empty() ? "" : " | ", name);
  }
  if (patterns.empty()) return "";
  std::string text = "      case $before in\n";
  for (const auto& [answer, names] : patterns) text += str("        ", names, ") ", answer, "\n");
  return text + "      esac\n";
}

std::string branch(const Page& page) {
  std::string text = str("    ", page.name, ")\n");
  if (page.elsewhere) {
    return text + "      [[ $word != -* ]] || options=$(_kpd_ask)\n      values=FILE\n      ;;\n";
  }
  text += values_of(page);
  std::vector<std::string> names;
  for (const Option& option : page.options) names.insert(names.end(), option.names.begin(), option.names.end());
  text += str("      options='", joined(names), "'\n");
  // All that stands without an option is of one kind, in every command.
  for (const Option& option : page.positionals) {
    text += str("      values='", option.kind == Kind::kFile ? "FILE" : joined(option.choices), "'\n");
    break;
  }
  return text + "      ;;\n";
}

}  // namespace

std::string bash_completion(const std::vector<Page>& pages) {
  std::vector<std::string> verbs, general;
  for (const Page& page : pages) verbs.push_back(page.name);
  for (const auto& [name, meaning] : tool::general_help().options) general.push_back(name);
  std::string text = str(kHead, "  if ((COMP_CWORD == 1)) || [[ $verb == help ]]; then\n    options='", joined(general),
                         "'\n    ((COMP_CWORD > 2)) || values='", joined(verbs), "'\n  fi\n  case $verb in\n");
  for (const Page& page : pages) text += branch(page);
  return text + "  esac\n" + kTail;
}

}  // namespace kpd::pages
