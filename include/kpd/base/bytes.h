// base: the checked little-endian reader and writer through which all parsing and serialising goes.
//
// ByteReader never reads past its span: a short read throws Error(kCorruptData) naming `what`, the byte offset and the
// number of bytes that were expected and are left. ByteWriter writes into caller's memory and never past it; a full
// buffer throws Error(kInvalidArgument). Both are thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kpd/base/error.h"

namespace kpd {

inline std::span<const uint8_t> text_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class ByteReader {
 public:
  // `name` is the file or message named in errors; it must outlive the reader. `base_offset` is added to offsets in errors.
  explicit ByteReader(std::span<const uint8_t> bytes, std::string_view name = "message", uint64_t base_offset = 0)
      : bytes_(bytes), name_(name), base_offset_(base_offset) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
  bool at_end() const { return remaining() == 0; }
  std::string_view name() const { return name_; }

  uint8_t u8(std::string_view what);
  uint16_t u16(std::string_view what);
  uint32_t u32(std::string_view what);
  uint64_t u64(std::string_view what);
  int16_t i16(std::string_view what) { return static_cast<int16_t>(u16(what)); }
  float f32(std::string_view what);
  double f64(std::string_view what);
  // The next n bytes, not copied.
  std::span<const uint8_t> take(uint64_t n, std::string_view what);
  void skip(uint64_t n, std::string_view what) { (void)take(n, what); }

  // Throws Error(code, "NAME: byte OFFSET: TEXT"), the text from strings and numbers.
  template <class... Args>
  [[noreturn]] void throw_at(ErrorCode code, uint64_t offset, const Args&... args) const {
    fail_at(code, name_, base_offset_ + offset, args...);
  }
  // The same as kCorruptData, here.
  template <class... Args>
  [[noreturn]] void corrupt(const Args&... args) const {
    throw_at(ErrorCode::kCorruptData, offset_, args...);
  }

 private:
  std::span<const uint8_t> bytes_;
  std::string_view name_;
  uint64_t base_offset_ = 0;
  size_t offset_ = 0;
};

class ByteWriter {
 public:
  explicit ByteWriter(std::span<uint8_t> dst) : dst_(dst) {}

  size_t size() const { return offset_; }
  size_t capacity() const { return dst_.size(); }
  void u8(uint8_t v);
  void u16(uint16_t v);
  void u32(uint32_t v);
  void u64(uint64_t v);
  void i16(int16_t v) { u16(static_cast<uint16_t>(v)); }
  void f32(float v);
  void bytes(std::span<const uint8_t> v);
  void text(std::string_view v);
  // Reserves n bytes to be filled by the caller.
  std::span<uint8_t> reserve(size_t n);

 private:
  std::span<uint8_t> dst_;
  size_t offset_ = 0;
};

inline uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }
inline uint32_t load_u32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | (static_cast<uint32_t>(p[1]) << 8) | (static_cast<uint32_t>(p[2]) << 16) |
         (static_cast<uint32_t>(p[3]) << 24);
}
inline uint64_t load_u64(const uint8_t* p) {
  return static_cast<uint64_t>(load_u32(p)) | (static_cast<uint64_t>(load_u32(p + 4)) << 32);
}
inline void store_u16(uint8_t* p, uint16_t v) {
  p[0] = static_cast<uint8_t>(v);
  p[1] = static_cast<uint8_t>(v >> 8);
}
inline void store_u32(uint8_t* p, uint32_t v) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(v >> (8 * i));
}
inline void store_u64(uint8_t* p, uint64_t v) {
  for (int i = 0; i < 8; ++i) p[i] = static_cast<uint8_t>(v >> (8 * i));
}

}  // namespace kpd
