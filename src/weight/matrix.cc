// weight: names of transforms (matrix.h).
#include "kpd/weight/matrix.h"

namespace kpd::weight {

const char* transform_kind_name(TransformKind kind) {
  switch (kind) {
    case TransformKind::kRotate:
      return "rotate";
    case TransformKind::kRotateBack:
      return "rotate back";
    case TransformKind::kRoundInt8:
      return "round to 8 bits";
  }
  return "?";
}

}  // namespace kpd::weight
