// llm: the files of HellaSwag, PIQA and LAMBADA. Texts are hostile: every line is checked and named.
#include <algorithm>
#include <optional>

#include "io/json.h"
#include "io/text.h"
#include "kpd/base/error.h"
#include "kpd/llm/tasks.h"
#include "kpd/llm/task_files.h"
#include "kpd/text/text_file.h"

namespace kpd::llm {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\v\f";

// Line by line, without line breaks; an empty last line is none.
class Lines {
 public:
  Lines(std::string_view text, std::string_view name) : text_(text::without_byte_order_mark(text)), name_(name) {}
  std::optional<std::string_view> next() {
    if (at_ >= text_.size()) return std::nullopt;
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string_view line = text_.substr(at_, end - at_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at_ = end + 1;
    ++number_;
    return line;
  }
  // The next line that is not empty.
  std::optional<std::string_view> next_filled() {
    for (;;) {
      const auto line = next();
      if (!line || line->find_first_not_of(kSpaces) != std::string_view::npos) return line;
    }
  }
  template <class... Args>
  [[noreturn]] void bad(const Args&... what) const {
    fail(ErrorCode::kCorruptData, io::printable_path(name_), ": line ", number_, ": ", what...);
  }

 private:
  std::string_view text_, name_;
  size_t at_ = 0, number_ = 0;
};

size_t digit(const Lines& lines, std::string_view text, char last) {
  const size_t first = text.find_first_not_of(kSpaces), end = text.find_last_not_of(kSpaces);
  if (first == std::string_view::npos || first != end || text[first] < '0' || text[first] > last)
    lines.bad("expected the number of the right ending, 0 to ", last);
  return static_cast<size_t>(text[first] - '0');
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) text.replace(at, what.size(), by);
}

// lm-eval's hellaswag/utils.py: what WikiHow left in brackets goes.
std::string clean(std::string_view line) {
  const size_t first = line.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  std::string text(line.substr(first, line.find_last_not_of(kSpaces) - first + 1));
  replace_all(text, " [title]", ". ");
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t close = text[at] == '[' ? text.find(']', at) : std::string::npos;
    if (close == std::string::npos) {
      kept += text[at++];
    } else {
      at = close + 1;
    }
  }
  replace_all(kept, "  ", " ");
  return kept;
}

std::optional<TaskItem> next_hellaswag(Lines& lines) {
  const auto context = lines.next_filled();
  if (!context) return std::nullopt;
  TaskItem item;
  item.context = clean(*context);
  const auto right = lines.next();
  if (!right) lines.bad("the file ends within an item, expected 6 lines each");
  item.right = digit(lines, *right, '3');
  for (int i = 0; i < 4; ++i) {
    const auto ending = lines.next();
    if (!ending) lines.bad("the file ends within an item, expected 6 lines each");
    item.endings.push_back(clean(*ending));
    if (item.endings.back().empty()) lines.bad("the ending is empty");
  }
  return item;
}

io::Json object(const Lines& lines, std::string_view line) {
  io::Json parsed = io::Json::parse(line, nullptr, false);
  if (!parsed.is_object()) lines.bad("expected a JSON object");
  return parsed;
}

std::string text_of(const Lines& lines, const io::Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) lines.bad("expected a string '", key, "'");
  return it->get<std::string>();
}

std::optional<TaskItem> next_piqa(Lines& lines, Lines& labels, bool has_labels) {
  const auto line = lines.next_filled();
  if (!line) return std::nullopt;
  const io::Json parsed = object(lines, *line);
  TaskItem item{"Question: " + text_of(lines, parsed, "goal") + "\nAnswer:",
                {text_of(lines, parsed, "sol1"), text_of(lines, parsed, "sol2")},
                0};
  if (const auto it = parsed.find("label"); it != parsed.end() && it->is_number_integer() && (*it == 0 || *it == 1)) {
    item.right = *it == 1 ? 1 : 0;
  } else if (has_labels) {
    const auto label = labels.next_filled();
    if (!label) labels.bad("the labels end before the items");
    item.right = digit(labels, *label, '1');
  } else {
    lines.bad("expected a label 0 or 1, here or in a file of labels");
  }
  return item;
}

std::optional<TaskItem> next_lambada(Lines& lines) {
  const auto line = lines.next_filled();
  if (!line) return std::nullopt;
  const std::string text = text_of(lines, object(lines, *line), "text");
  const size_t space = text.rfind(' ');
  if (space == std::string::npos || space + 1 == text.size())
    lines.bad("expected a string that ends with a word after a space");
  return TaskItem{text.substr(0, space), {text.substr(space + 1)}, 0};
}

}  // namespace

std::vector<TaskItem> read_task(Task task, std::string_view data, std::string_view labels, std::string_view name,
                                size_t limit) {
  if (data.starts_with("BZh"))
    fail(ErrorCode::kCorruptData, io::printable_path(name), ": is compressed; unpack it with bunzip2 -k");
  Lines lines(data, name), label_lines(labels, name);
  std::vector<TaskItem> items;
  while (limit == 0 || items.size() < limit) {
    auto item = task == Task::kHellaswag ? next_hellaswag(lines)
                : task == Task::kPiqa    ? next_piqa(lines, label_lines, !labels.empty())
                                         : next_lambada(lines);
    if (!item) break;
    items.push_back(std::move(*item));
  }
  if (items.empty()) fail(ErrorCode::kCorruptData, io::printable_path(name), ": holds no item of ", task_name(task));
  return items;
}

}  // namespace kpd::llm
