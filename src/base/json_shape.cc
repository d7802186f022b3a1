#include "kpd/base/json_shape.h"

#include <algorithm>

namespace kpd {

JsonShape json_shape(std::string_view text) {
  JsonShape shape;
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        ++shape.parts;
        for (++i; i < text.size() && text[i] != '"'; ++i) {
          if (text[i] == '\\') ++i;
        }
        break;
      case '{':
      case '[':
        ++shape.parts;
        shape.depth = std::max(shape.depth, ++depth);
        break;
      case '}':
      case ']':
        depth -= depth > 0 ? 1 : 0;
        break;
      default:
        break;
    }
  }
  return shape;
}

}  // namespace kpd
