// tools: the completion script for zsh, which is autoloaded by its name _kpd: a call of _arguments for each command.
#include "help.h"
#include "kpd/base/error.h"
#include "pages.h"

namespace kpd::pages {
namespace {

// Within single quotes, and within the specifications of _arguments and _describe, where colons and brackets mean something.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

// ":N: ": what is shown for the value, and what is proposed.
std::string value_of(const Option& option) {
  if (option.kind == Kind::kNone) return "";
  std::string text = str(":", quoted(option.value), ":");
  if (option.kind == Kind::kFile) return text + "_files";
  if (option.kind == Kind::kAny) return text + " ";
  return str(text, "(", joined(option.choices), ")");
}

std::string specification(const Option& option) {
  const std::string all = joined(option.names);
  std::string lines;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    const char* separator = option.kind == Kind::kNone ? "" : is_long ? "=" : "+";
    lines += str("        '", option.repeats ? std::string("*") : str("(", all, ")"), name, separator, "[", quoted(option.help),
                 "]", value_of(option), "' \\\n");
  }
  return lines;
}

std::string branch(const Page& page) {
  std::string text = str("    ", page.name, ")\n");
  if (page.elsewhere) return text + "      _kpd_ask\n      ;;\n";
  text += "      _arguments -s -S \\\n";
  for (const Option& option : page.options) text += specification(option);
  for (const Option& option : page.positionals) {
    text += str("        '", option.repeats ? "*" : "", value_of(option), "' \\\n");
  }
  return text + "        && return\n      ;;\n";
}

constexpr const char* kHead = R"zsh(#compdef kpd kpd-mpi
# zsh completion of kpd; written by kpd_pages of the program's own tables.

# The options of a command that another program has, which is asked.
_kpd_ask() {
  local -a options
  options=(${(f)"$(${~program} $words[1] --help 2>/dev/null | sed -nE 's/^ +(-[a-z],)?(--[a-z-]+)( .*|$)/\2/p')"})
  if [[ $PREFIX == -* ]]; then compadd -a options; else _files; fi
}

_kpd() {
  local program=$words[1]
  local -a commands general
)zsh";

constexpr const char* kTail = R"zsh(  esac
}

_kpd "$@"
)zsh";

}  // namespace

std::string zsh_completion(const std::vector<Page>& pages) {
  std::string text = str(kHead, "  commands=(\n");
  for (const Page& page : pages) text += str("    '", quoted(page.name), ":", quoted(page.summary), "'\n");
  text += "  )\n  general=(\n";
  for (const auto& [name, meaning] : tool::general_help().options) text += str("    '", name, ":", quoted(meaning), "'\n");
  text += R"zsh(  )
  if (( CURRENT == 2 )); then
    if [[ $PREFIX == -* ]]; then _describe -o option general; else _describe command commands; fi
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
    help)
      (( CURRENT > 2 )) || _describe command commands
      ;;
)zsh";
  for (const Page& page : pages) text += branch(page);
  return text + kTail;
}

}  // namespace kpd::pages
