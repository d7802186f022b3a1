// io: JSON read as a stream of events, which is what bounds it: no tree is built, nothing recurses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

namespace kpd::io {

// A byte iterator that tells how far the lexer has read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* p, size_t* count) : p_(p), count_(count) {}
  reference operator*() const { return *p_; }
  CountingIterator& operator++() {
    ++p_;
    ++*count_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return p_ == other.p_; }
  bool operator!=(const CountingIterator& other) const { return p_ != other.p_; }

 private:
  const char* p_;
  size_t* count_;
};

// Calls the functions of nlohmann's SAX interface on `events` for the text; `position` is where the lexer stands meanwhile.
template <class Events>
void read_json(std::span<const uint8_t> text, size_t& position, Events& events) {
  const char* begin = reinterpret_cast<const char*>(text.data());
  (void)nlohmann::json::sax_parse(CountingIterator(begin, &position), CountingIterator(begin + text.size(), &position),
                                  &events);
}

}  // namespace kpd::io
