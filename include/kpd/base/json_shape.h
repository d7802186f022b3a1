// base: how deep a JSON text is nested and of how many parts it is, known before it is parsed: a tree takes up to 40 times the
// memory of its text, and nlohmann's parser with a callback takes a time that grows with the square of a list of objects.
#pragma once

#include <cstddef>
#include <string_view>

namespace kpd {

struct JsonShape {
  size_t depth = 0;  // levels of lists and objects
  size_t parts = 0;  // texts (names of fields too), lists and objects
};

// One pass, nothing is allocated. Exact for valid JSON; of any other text a number that says nothing.
JsonShape json_shape(std::string_view text);

}  // namespace kpd
