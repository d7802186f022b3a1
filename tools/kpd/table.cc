// tools: see table.h.
#include "table.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

namespace kpd::tool {
namespace {

constexpr std::string_view kGap = "  ";

// The last place up to `width` characters behind `begin` where a line may end: at a blank, behind a spec's comma, or, if there
// is neither, behind a spec's colon.
size_t line_end(const std::string& text, size_t begin, size_t width) {
  for (const bool colons : {false, true}) {
    for (size_t i = begin + width; i > begin; --i) {
      const bool behind = text[i - 1] == ',' || (colons && text[i - 1] == ':');
      if (text[i] == ' ' || (behind && std::isalpha(static_cast<unsigned char>(text[i])) != 0)) return i;
    }
  }
  return begin + width;
}

// Lines of at most `width` characters.
std::vector<std::string> lines_of(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size() || lines.empty();) {
    size_t end = text.size();
    if (text.size() - begin > width) end = line_end(text, begin, width);
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
    while (begin < text.size() && text[begin] == ' ') ++begin;
  }
  return lines;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string markdown_field(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

// The columns `block` of one row, as many lines as its longest cell has.
std::string text_line(const std::vector<Column>& columns, const std::vector<size_t>& widths, const std::vector<size_t>& block,
                      const std::vector<std::string>& cells) {
  std::vector<std::vector<std::string>> parts;
  size_t n_lines = 0;
  for (const size_t c : block) {
    parts.push_back(lines_of(cells[c], widths[c]));
    n_lines = std::max(n_lines, parts.back().size());
  }
  std::string out;
  for (size_t l = 0; l < n_lines; ++l) {
    std::string line;
    for (size_t b = 0; b < block.size(); ++b) {
      const Column& column = columns[block[b]];
      const std::string part = l < parts[b].size() ? parts[b][l] : std::string();
      line += column.left ? fmt::format("{:<{}}", part, widths[block[b]]) : fmt::format("{:>{}}", part, widths[block[b]]);
      line += kGap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::vector<std::string> texts_of(const std::vector<Cell>& cells) {
  std::vector<std::string> texts;
  for (const Cell& cell : cells) texts.push_back(cell.text);
  return texts;
}

}  // namespace

Cell::Cell(std::string shown, double value)
    : text(std::move(shown)), exact(std::isfinite(value) ? fmt::format("{}", value) : "") {}

std::string fixed(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  const std::string text = fmt::format("{:.{}f}", value, digits);
  return text.find_first_not_of("-0.") == std::string::npos && text[0] == '-' ? text.substr(1) : text;
}
std::string significant(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}g}", value == 0 ? 0.0 : value, digits) : "-";
}
Cell fixed_cell(double value, int digits) { return {fixed(value, digits), value}; }
Cell significant_cell(double value, int digits) { return {significant(value, digits), value}; }
Cell count_cell(uint64_t value) { return {fmt::format("{}", value)}; }

void Table::add(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }

std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = std::max({columns_[c].head.size(), columns_[c].unit.size(), columns_[c].min_width});
    for (const auto& row : rows_) width = std::max(width, row[c].text.size());
    widths.push_back(columns_[c].left ? std::min(width, columns_[c].max_width) : width);
  }
  return widths;
}

// Which columns stand beside one another.
std::vector<std::vector<size_t>> Table::blocks(const std::vector<size_t>& widths) const {
  std::vector<std::vector<size_t>> blocks = {{0}};
  size_t used = widths[0];
  for (size_t c = 1; c < columns_.size(); ++c) {
    if (columns_[c].head.empty()) continue;
    if (used + kGap.size() + widths[c] > kMaxColumns && blocks.back().size() > 1) {
      blocks.push_back({0});
      used = widths[0];
    }
    blocks.back().push_back(c);
    used += kGap.size() + widths[c];
  }
  return blocks;
}

std::string Table::head(Format format) const {
  std::string out, rule;
  if (format == Format::kCsv) {
    for (const Column& column : columns_) out += (out.empty() ? "" : ",") + column.key;
    return out + "\n";
  }
  if (format == Format::kMarkdown) {
    for (const Column& column : columns_) {
      if (column.head.empty()) continue;
      out += "| " + column.head + (column.unit.empty() ? " " : ", " + column.unit + " ");
      rule += column.left ? "|---" : "|---:";
    }
    return out + "|\n" + rule + "|\n";
  }
  std::vector<std::string> heads, units;
  for (const Column& column : columns_) {
    heads.push_back(column.head);
    units.push_back(column.unit);
  }
  const std::vector<size_t> w = widths(), all = blocks(w)[0];
  out = text_line(columns_, w, all, heads);
  const bool has_units = std::any_of(all.begin(), all.end(), [&](size_t c) { return !units[c].empty(); });
  return has_units ? out + text_line(columns_, w, all, units) : out;
}

std::string Table::row(Format format, const std::vector<Cell>& cells) const {
  std::string out;
  if (format == Format::kText) {
    const std::vector<size_t> w = widths();
    return text_line(columns_, w, blocks(w)[0], texts_of(cells));
  }
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (format == Format::kCsv) out += (c == 0 ? "" : ",") + csv_field(cells[c].exact);
    if (format == Format::kMarkdown && !columns_[c].head.empty()) out += "| " + markdown_field(cells[c].text) + " ";
  }
  return out + (format == Format::kMarkdown ? "|\n" : "\n");
}

std::string Table::legend(Format format) const {
  if (format == Format::kCsv) return {};
  std::string text;
  for (const Column& column : columns_) {
    if (!column.legend.empty()) text += str(text.empty() ? "" : "; ", column.head, ": ", column.legend);
  }
  if (text.empty()) return {};
  return format == Format::kMarkdown ? "\n" + text + "\n" : wrapped(text) + "\n";
}

std::string Table::render(Format format) const {
  std::string out;
  if (format != Format::kText) {
    out = head(format);
    for (const auto& cells : rows_) out += row(format, cells);
    return out + legend(format);
  }
  const std::vector<size_t> w = widths();
  for (const std::vector<size_t>& block : blocks(w)) {
    std::vector<Column> part;
    for (const size_t c : block) part.push_back(columns_[c]);
    Table below(part);
    for (const auto& cells : rows_) {
      std::vector<Cell> some;
      for (const size_t c : block) some.push_back(cells[c]);
      below.add(some);
    }
    out += (out.empty() ? "" : "\n") + below.head(format);
    for (const auto& cells : below.rows_) out += below.row(format, cells);
  }
  return out + legend(format);
}

std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::string out;
  for (const std::string& line : lines_of(text, width - indent)) {
    out += (out.empty() ? std::string() : "\n" + std::string(indent, ' ')) + line;
  }
  return out;
}

}  // namespace kpd::tool
