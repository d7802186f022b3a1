// base: text of errors. Numbers are formatted without the locale.
#include "kpd/base/error.h"

#include <charconv>

namespace kpd {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kCorruptData:
      return "corrupt_data";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kLimitExceeded:
      return "limit_exceeded";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
  }
  return "unknown";
}

namespace detail {
namespace {

template <class T>
void append_number(std::string& out, T v) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof(text), v);
  out.append(text, result.ptr);
}

}  // namespace

void append(std::string& out, std::string_view v) { out += v; }
void append(std::string& out, const char* v) { out += v; }
void append(std::string& out, char v) { out += v; }
void append(std::string& out, bool v) { out += v ? "true" : "false"; }
void append(std::string& out, double v) { append_number(out, v); }
void append(std::string& out, float v) { append_number(out, v); }
void append(std::string& out, int v) { append_number(out, v); }
void append(std::string& out, unsigned v) { append_number(out, v); }
void append(std::string& out, long v) { append_number(out, v); }
void append(std::string& out, unsigned long v) { append_number(out, v); }
void append(std::string& out, long long v) { append_number(out, v); }
void append(std::string& out, unsigned long long v) { append_number(out, v); }

}  // namespace detail
}  // namespace kpd
