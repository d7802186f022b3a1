// io: JSON parsed with the limits that are on by default.
#include "io/json.h"

#include "kpd/base/error.h"
#include "kpd/base/json_shape.h"
#include "kpd/base/limits.h"

namespace kpd::io {
namespace {

constexpr size_t kMaxDepth = 64;

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  const Limits limits;
  if (text.size() > limits.max_header_bytes) {
    fail(ErrorCode::kLimitExceeded, file, ": ", text.size(), " bytes of JSON, the limit is ", limits.max_header_bytes);
  }
  if (json_shape(text).depth > kMaxDepth) fail(ErrorCode::kLimitExceeded, file, ": JSON of more than ", kMaxDepth, " levels");
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& e) {
    fail_at(ErrorCode::kCorruptData, file, e.byte > 0 ? e.byte - 1 : 0, "not valid JSON here");
  } catch (const Json::exception&) {
    fail(ErrorCode::kCorruptData, file, ": a number beyond what a double holds");
  }
}

}  // namespace kpd::io
