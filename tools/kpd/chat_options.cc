#include "chat_options.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "kpd/io/file.h"

namespace kpd::tool {
namespace {

constexpr std::array<std::string_view, 2> kOnOff = {"on", "off"};

text::ChatTemplate from_file(const std::string& path) {
  const io::MappedFile file = io::map_file(path);
  const std::string source(file.text());
  try {
    return text::ChatTemplate::from_source(source);
  } catch (const Error& e) {
    fail(e.code(), path, ": ", e.what());
  }
}

std::string list(std::span<const std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) out += str(out.empty() ? "" : ", ", name);
  return out;
}

}  // namespace

void ChatArgs::add_options(CLI::App& app) {
  add(app, "--chat-template", template_text, "NAME",
      "a Jinja file, " + list(text::ChatTemplate::names()) +
          ", or one of several that the model brings (default: the model's own)");
  add(app, "--thinking", thinking, "on|off", "the template's enable_thinking, for models that think (default: the template's)");
  add(app, "--date", date, "YYYY-MM-DD", "the day that templates which write the date see (default: today)");
  add(app, "--special-in-content", special_in_content, "read control tokens in messages too, not in the template alone");
}

const char* ChatArgs::given() const {
  if (!template_text.empty()) return "--chat-template";
  if (!thinking.empty()) return "--thinking";
  if (!date.empty()) return "--date";
  return special_in_content ? "--special-in-content" : nullptr;
}

text::ChatOptions ChatArgs::options() const {
  text::ChatOptions options;
  if (!thinking.empty()) options.thinking = parse_choice("--thinking", thinking, kOnOff) == 0;
  if (!date.empty()) options.now = as_usage("--date", [&] { return text::parse_chat_date(date); });
  return options;
}

text::ChatTemplate choose_template(const ChatArgs& args, const text::Tokenizer& tokenizer) {
  const std::string& named = args.template_text;
  const auto own = tokenizer.named_chat_templates();
  if (named.empty()) {
    try {
      return text::ChatTemplate::of_model(tokenizer);
    } catch (const Error& e) {
      fail(e.code(), e.what(), " (--chat-template)");
    }
  }
  const auto names = text::ChatTemplate::names();
  if (std::find(names.begin(), names.end(), named) != names.end()) return text::ChatTemplate::built_in(named);
  for (const text::NamedTemplate& t : own) {
    if (t.name == named) return text::ChatTemplate::from_source(t.source);
  }
  std::error_code ignored;
  if (std::filesystem::exists(named, ignored)) return from_file(named);
  std::string more;
  for (const text::NamedTemplate& t : own) more += str(more.empty() ? ", one of the model's (" : ", ", t.name);
  usage("--chat-template ", named, ": expected a file, or one of ", list(names), more, more.empty() ? "" : ")");
}

}  // namespace kpd::tool
