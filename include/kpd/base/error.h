// base: the one exception type of the library.
//
// The library never prints, exits or aborts on data; it throws kpd::Error. The text is one sentence that names the
// file, tensor, byte offset or option at fault and what was expected there.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kpd {

// Numeric values are part of the ABI (the C interface returns them); never renumber.
enum class ErrorCode : int {
  kInvalidArgument = 1,  // the caller asked for something that makes no sense (bad spec, wrong size)
  kCorruptData = 2,      // an input's content is wrong
  kUnsupported = 3,      // valid, but this version or this build cannot do it
  kLimitExceeded = 4,    // valid, but beyond the limits that are on by default
  kIo = 5,               // the operating system refused (unreadable path, full disk)
  kMismatch = 6,         // a message of another run, round, client or manifest than expected
  kCancelled = 7,        // Ctrl-C or a cancelled operation
  kInternal = 8,         // a defect of kpd itself
  kOutOfMemory = 9,
};

// Short stable name of a code, e.g. "corrupt_data".
const char* error_code_name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text, std::optional<uint64_t> offset = {})
      : std::runtime_error(text), code_(code), offset_(offset) {}
  ErrorCode code() const { return code_; }
  // Of an input whose content is wrong at one place: the byte at which it is, or where the part that holds it begins.
  std::optional<uint64_t> offset() const { return offset_; }

 private:
  ErrorCode code_;
  std::optional<uint64_t> offset_;
};

// Concatenates text and numbers, for messages: str("offset ", 12, ": expected ", n).
namespace detail {
void append(std::string& out, std::string_view v);
void append(std::string& out, const char* v);
void append(std::string& out, char v);
void append(std::string& out, bool v);
void append(std::string& out, double v);
void append(std::string& out, float v);
void append(std::string& out, int v);
void append(std::string& out, unsigned v);
void append(std::string& out, long v);
void append(std::string& out, unsigned long v);
void append(std::string& out, long long v);
void append(std::string& out, unsigned long long v);
inline void append(std::string& out, const std::string& v) { out += v; }
inline void append(std::string& out, unsigned char v) { append(out, static_cast<unsigned>(v)); }
inline void append(std::string& out, unsigned short v) { append(out, static_cast<unsigned>(v)); }
inline void append(std::string& out, short v) { append(out, static_cast<int>(v)); }
}  // namespace detail

template <class... Args>
std::string str(const Args&... args) {
  std::string out;
  (detail::append(out, args), ...);
  return out;
}

// throw Error(code, str(args...))
template <class... Args>
[[noreturn]] void fail(ErrorCode code, const Args&... args) {
  throw Error(code, str(args...));
}

// The same with a place: "NAME: byte OFFSET: " and the text.
template <class... Args>
[[noreturn]] void fail_at(ErrorCode code, std::string_view name, uint64_t offset, const Args&... args) {
  throw Error(code, str(name, ": byte ", offset, ": ", args...), offset);
}

}  // namespace kpd
