// tools: tables, for people (text: at most 100 columns, a legend below), for pages (markdown) and for programs (csv). What a
// command prints as a table it prints through here, so that widths, numbers and heads are made in one place.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli.h"

namespace kpd::tool {

inline constexpr size_t kMaxColumns = 100;  // of a terminal

struct Column {
  std::string key;          // csv's head: the field's name in --json
  std::string head;         // in text and markdown; empty: the column is in csv only
  std::string unit = {};    // below the head
  std::string legend = {};  // what it is, in the lines below the table
  bool left = false;        // words, wrapped if long; else a number, set to the right
  size_t min_width = 0;     // of a table whose rows are printed as they come
  size_t max_width = 40;    // of words
};

// What people read, and what a program reads: all digits.
struct Cell {
  std::string text, exact;
  Cell(std::string words) : text(words), exact(std::move(words)) {}  // NOLINT: a word is a cell
  Cell(const char* words) : Cell(std::string(words)) {}              // NOLINT
  Cell(std::string shown, std::string data) : text(std::move(shown)), exact(std::move(data)) {}
  Cell(std::string shown, double value);
};
// `digits` behind the point. Never "-0.00"; "-" where the value is not finite.
std::string fixed(double value, int digits);
std::string significant(double value, int digits);
Cell fixed_cell(double value, int digits);
Cell significant_cell(double value, int digits);
Cell count_cell(uint64_t value);

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> cells);  // one a column
  // All of it, with a line feed at its end. In text, what is wider than a terminal goes on below under the first column again.
  std::string render(Format format) const;
  // A row alone and the head alone, for a table printed as it grows.
  std::string head(Format format) const;
  std::string row(Format format, const std::vector<Cell>& cells) const;
  std::string legend(Format format) const;

 private:
  std::vector<size_t> widths() const;
  std::vector<std::vector<size_t>> blocks(const std::vector<size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// `text` in lines of at most `width`, broken behind blanks and commas; those after the first start with `indent` blanks.
std::string wrapped(const std::string& text, size_t width = kMaxColumns, size_t indent = 0);

}  // namespace kpd::tool
