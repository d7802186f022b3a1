// base: the checked reader and writer. Every read compares with what is left before it touches memory.
#include "kpd/base/bytes.h"

#include <bit>
#include <cstring>

#include "kpd/base/error.h"

namespace kpd {

std::span<const uint8_t> ByteReader::take(uint64_t n, std::string_view what) {
  if (n > remaining()) {
    corrupt("expected ", n, n == 1 ? " byte" : " bytes", " of ", what, ", ", remaining(), " left");
  }
  const auto result = bytes_.subspan(offset_, static_cast<size_t>(n));
  offset_ += static_cast<size_t>(n);
  return result;
}

uint8_t ByteReader::u8(std::string_view what) { return take(1, what)[0]; }
uint16_t ByteReader::u16(std::string_view what) { return load_u16(take(2, what).data()); }
uint32_t ByteReader::u32(std::string_view what) { return load_u32(take(4, what).data()); }
uint64_t ByteReader::u64(std::string_view what) { return load_u64(take(8, what).data()); }
float ByteReader::f32(std::string_view what) { return std::bit_cast<float>(u32(what)); }
double ByteReader::f64(std::string_view what) { return std::bit_cast<double>(u64(what)); }

std::span<uint8_t> ByteWriter::reserve(size_t n) {
  if (n > dst_.size() - offset_) {
    fail(ErrorCode::kInvalidArgument, "output buffer: byte ", offset_, ": ", n, " bytes to write, ", dst_.size() - offset_,
         " of ", dst_.size(), " left");
  }
  const auto result = dst_.subspan(offset_, n);
  offset_ += n;
  return result;
}

void ByteWriter::u8(uint8_t v) { reserve(1)[0] = v; }
void ByteWriter::u16(uint16_t v) { store_u16(reserve(2).data(), v); }
void ByteWriter::u32(uint32_t v) { store_u32(reserve(4).data(), v); }
void ByteWriter::u64(uint64_t v) { store_u64(reserve(8).data(), v); }
void ByteWriter::f32(float v) { u32(std::bit_cast<uint32_t>(v)); }

void ByteWriter::bytes(std::span<const uint8_t> v) {
  const auto dst = reserve(v.size());
  if (!v.empty()) std::memcpy(dst.data(), v.data(), v.size());
}

void ByteWriter::text(std::string_view v) { bytes(text_bytes(v)); }

}  // namespace kpd
