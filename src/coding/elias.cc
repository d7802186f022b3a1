// coding: bit strings and Elias codes; formats stand in the header.
#include "kpd/coding/elias.h"

#include <bit>

#include "kpd/base/error.h"

namespace kpd::coding {
namespace {

void check_positive(uint32_t value) {
  if (value == 0) fail(ErrorCode::kInvalidArgument, "Elias codes start at 1, not 0");
}

int bit_length(uint32_t value) { return std::bit_width(value); }

}  // namespace

void BitWriter::store(int n_bytes) {
  if (dst_.size() - offset_ < static_cast<size_t>(n_bytes)) {
    fail(ErrorCode::kInvalidArgument, "bit writer: the buffer of ", dst_.size(), " bytes is full");
  }
  for (int k = 0; k < n_bytes; ++k) {
    n_pending_ -= 8;
    dst_[offset_++] = static_cast<uint8_t>(pending_ >> n_pending_);
  }
}

void BitWriter::put(uint32_t value, int n_bits) {
  const uint64_t masked = value & ((uint64_t{1} << n_bits) - 1);
  pending_ = pending_ << n_bits | masked;
  n_pending_ += n_bits;
  if (n_pending_ >= 32) store(4);
}

size_t BitWriter::finish() {
  const int fill = (8 - n_pending_ % 8) % 8;
  pending_ <<= fill;
  n_pending_ += fill;
  store(n_pending_ / 8);
  return offset_;
}

uint32_t BitReader::get(int n_bits) {
  while (n_ready_ < n_bits) {
    if (offset_ == src_.size()) corrupt("the bits end before the last value");
    ready_ = ready_ << 8 | src_[offset_++];
    n_ready_ += 8;
  }
  n_ready_ -= n_bits;
  return static_cast<uint32_t>(ready_ >> n_ready_ & ((uint64_t{1} << n_bits) - 1));
}

void BitReader::finish() {
  if (remaining_bits() >= 8) corrupt("bytes are left after the last value");
  if (n_ready_ > 0 && get(n_ready_) != 0) corrupt("the bits that fill the last byte are not zero");
}

void BitReader::corrupt(const char* text) const { fail(ErrorCode::kCorruptData, "byte ", base_offset_ + offset_, ": ", text); }

void put_elias_omega(BitWriter& writer, uint32_t value) {
  check_positive(value);
  // 32-bit values have at most five groups (32 bits, 5, 3, 2 and none).
  uint32_t groups[6];
  int n_groups = 0;
  for (uint32_t n = value; n > 1; n = bit_length(n) - 1) groups[n_groups++] = n;
  while (n_groups > 0) {
    const uint32_t group = groups[--n_groups];
    writer.put(group, bit_length(group));
  }
  writer.put(0, 1);
}

int elias_omega_bits(uint32_t value) {
  check_positive(value);
  int bits = 1;
  for (uint32_t n = value; n > 1; n = bit_length(n) - 1) bits += bit_length(n);
  return bits;
}

uint32_t get_elias_omega(BitReader& reader, uint32_t max) {
  uint32_t n = 1;
  while (reader.get(1) != 0) {
    if (n > 31) reader.corrupt("an Elias omega code is longer than 32 bits");
    const uint32_t low = reader.get(static_cast<int>(n));
    n = uint32_t{1} << n | low;
  }
  if (n > max) reader.corrupt("an Elias omega value is beyond its limit");
  return n;
}

void put_elias_gamma(BitWriter& writer, uint32_t value) {
  check_positive(value);
  const int length = bit_length(value);
  writer.put(0, length - 1);
  writer.put(value, length);
}

int elias_gamma_bits(uint32_t value) {
  check_positive(value);
  return 2 * bit_length(value) - 1;
}

uint32_t get_elias_gamma(BitReader& reader, uint32_t max) {
  int zeros = 0;
  while (reader.get(1) == 0) {
    if (++zeros > 31) reader.corrupt("an Elias gamma code is longer than 32 bits");
  }
  const uint32_t value = uint32_t{1} << zeros | reader.get(zeros);
  if (value > max) reader.corrupt("an Elias gamma value is beyond its limit");
  return value;
}

}  // namespace kpd::coding
