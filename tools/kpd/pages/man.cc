// tools: man pages in the macros of man(7), which man-db and mandoc read alike.
#include <algorithm>

#include "help.h"
#include "kpd/base/error.h"
#include "kpd/base/version.h"
#include "pages.h"

namespace kpd::pages {
namespace {

// Text as roff shows it as it is: every dash is ASCII's, so that a command line can be copied out of the page.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool line_begins = out.empty() || out.back() == '\n';
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '^') {
      out += "\\(ha";
    } else if (c == '~') {
      out += "\\(ti";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(const std::string& text) { return str("\\fB", escaped(text), "\\fR"); }
std::string italic(const std::string& text) { return str("\\fI", escaped(text), "\\fR"); }

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return text;
}

std::string head(const std::string& name, const std::string& summary) {
  return str(".\\\" Written by kpd_pages of the program's own tables.\n.TH ", upper(name), " 1 \"\" \"kpd ", kVersion,
             "\" \"User commands\"\n.SH NAME\n", escaped(name), " \\- ", escaped(summary), "\n");
}

// .TP, what is explained, and the text.
std::string item(const std::string& what, const std::string& text) { return str(".TP\n", what, "\n", escaped(text), "\n"); }

std::string option_name(const Option& option) {
  std::string text;
  for (const std::string& name : option.names) text += str(text.empty() ? "" : ", ", bold(name));
  if (!option.value.empty()) text += str(" ", italic(option.value));
  return text;
}

std::string positional_name(const Option& option) { return str(italic(option.names[0]), option.repeats ? " ..." : ""); }

std::string examples(const std::vector<std::string>& lines) {
  std::string text = ".SH EXAMPLE\n.nf\n";
  for (const std::string& line : lines) text += str("    ", escaped(line), "\n");
  return text + ".fi\n";
}

}  // namespace

std::string man_page(const Page& page) {
  std::string text = head(str("kpd-", page.name), page.summary);
  text += str(".SH SYNOPSIS\n", bold(str("kpd ", page.name)), " [", italic("OPTIONS"), "]");
  for (const Option& option : page.positionals) text += str(" [", positional_name(option), "]");
  text += "\n";
  if (page.description != page.summary) text += str(".SH DESCRIPTION\n", escaped(page.description), "\n");
  if (!page.positionals.empty()) {
    text += ".SH ARGUMENTS\n";
    for (const Option& option : page.positionals) text += item(positional_name(option), option.help);
  }
  text += ".SH OPTIONS\n";
  for (const Option& option : page.options) text += item(option_name(option), option.help);
  return text + examples(page.example) + ".SH SEE ALSO\n" + bold("kpd") + "(1)\n";
}

std::string man_page(const std::vector<Page>& pages) {
  const tool::GeneralHelp& help = tool::general_help();
  std::string text = head("kpd", "compressed gradients within stated bounds, and language models on CPUs");
  text += str(".SH SYNOPSIS\n", bold("kpd"), " ", italic("COMMAND"), " [", italic("OPTIONS"), "]\n");
  text += str(".SH DESCRIPTION\n", escaped(help.about), "\n.SH COMMANDS\nEach has a page of its own.\n");
  for (const Page& page : pages) text += item(str(bold(str("kpd-", page.name)), "(1)"), page.summary);
  text += ".SH OPTIONS\n";
  for (const auto& [name, meaning] : help.options) text += item(bold(name), meaning);
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] : help.environment) text += item(bold(name), meaning);
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : help.exit_codes) text += item(bold(code), meaning);
  text += examples(help.example);
  text += ".SH SEE ALSO\n";
  for (const Page& page : pages) text += str(bold(str("kpd-", page.name)), &page == &pages.back() ? "(1)\n" : "(1),\n");
  return text;
}

}  // namespace kpd::pages
