// Elias codes and bit strings: known code words, round trips, bounds, hostile bits.
#include "kpd/coding/elias.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "kpd/base/rng.h"

namespace kpd::coding {
namespace {

template <class Put>
std::string code_word(Put put, uint32_t value) {
  std::vector<uint8_t> bytes(16);
  BitWriter writer(bytes);
  put(writer, value);
  const auto n_bits = writer.bits();
  writer.finish();
  std::string out;
  for (uint64_t k = 0; k < n_bits; ++k) out += bytes[k / 8] >> (7 - k % 8) & 1 ? '1' : '0';
  return out;
}

TEST(Elias, KnownCodeWords) {
  const std::pair<uint32_t, const char*> omega[] = {
      {1, "0"},       {2, "100"},      {3, "110"},          {4, "101000"},          {7, "101110"},
      {8, "1110000"}, {15, "1111110"}, {16, "10100100000"}, {100, "1011011001000"}, {1000, "11100111111010000"}};
  for (const auto& [value, word] : omega) EXPECT_EQ(code_word(put_elias_omega, value), word) << value;
  const std::pair<uint32_t, const char*> gamma[] = {{1, "1"}, {2, "010"}, {3, "011"}, {4, "00100"}, {17, "000010001"}};
  for (const auto& [value, word] : gamma) EXPECT_EQ(code_word(put_elias_gamma, value), word) << value;
}

std::vector<uint32_t> values() {
  std::vector<uint32_t> out;
  for (uint32_t v = 1; v < 300; ++v) out.push_back(v);
  for (int k = 8; k < 32; ++k) {
    for (uint32_t v : {(1u << k) - 1, 1u << k, (1u << k) + 1}) out.push_back(v);
  }
  out.push_back(0xffffffff);
  return out;
}

TEST(Elias, RoundTrips) {
  std::vector<uint8_t> bytes(1 << 16);
  BitWriter writer(bytes);
  uint64_t bits = 0;
  for (uint32_t v : values()) {
    put_elias_omega(writer, v);
    put_elias_gamma(writer, v);
    writer.put(v, static_cast<int>(v % 33));
    bits += elias_omega_bits(v) + elias_gamma_bits(v) + v % 33;
    ASSERT_EQ(writer.bits(), bits) << v;
  }
  bytes.resize(writer.finish());
  EXPECT_EQ(bytes.size(), (bits + 7) / 8);
  BitReader reader(bytes);
  for (uint32_t v : values()) {
    ASSERT_EQ(get_elias_omega(reader), v);
    ASSERT_EQ(get_elias_gamma(reader), v);
    const int n = static_cast<int>(v % 33);
    ASSERT_EQ(reader.get(n), n == 32 ? v : v & ((1u << n) - 1));
  }
  EXPECT_NO_THROW(reader.finish());
}

TEST(Elias, WriterStaysInItsBuffer) {
  for (size_t size : {0, 1, 3, 4, 5}) {
    std::vector<uint8_t> bytes(size);
    BitWriter writer(bytes);
    EXPECT_NO_THROW({
      for (size_t k = 0; k < size; ++k) writer.put(0xab, 8);
    });
    SCOPED_TRACE(size);
    EXPECT_KPD_ERROR(kInvalidArgument, "bytes is full", {
      for (int k = 0; k < 5; ++k) writer.put(1, 8);
      writer.finish();
    });
  }
  std::vector<uint8_t> bytes(8);
  BitWriter writer(bytes);
  EXPECT_KPD_ERROR(kInvalidArgument, "start at 1, not 0", put_elias_omega(writer, 0));
  EXPECT_KPD_ERROR(kInvalidArgument, "start at 1, not 0", put_elias_gamma(writer, 0));
  EXPECT_KPD_ERROR(kInvalidArgument, "start at 1, not 0", elias_omega_bits(0));
}

template <class Function>
void expect_corrupt(Function function) {
  try {
    function();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_EQ(std::string(error.what()).rfind("byte ", 0), 0u) << error.what();
  }
}

TEST(Elias, HostileBitsAreRefused) {
  const std::vector<uint8_t> ones(64, 0xff), zeros(64, 0);
  expect_corrupt([&] {
    BitReader reader(ones);
    get_elias_omega(reader);
  });
  expect_corrupt([&] {
    BitReader reader(zeros);
    get_elias_gamma(reader);
  });
  expect_corrupt([] {
    BitReader reader({});
    reader.get(1);
  });
  expect_corrupt([&] {
    BitReader reader(zeros);
    reader.finish();
  });
  const std::vector<uint8_t> filled = {0x01};
  expect_corrupt([&] {
    BitReader reader(filled);
    reader.get(3);
    reader.finish();
  });
  std::vector<uint8_t> bytes(8);
  BitWriter writer(bytes);
  put_elias_omega(writer, 17);
  put_elias_gamma(writer, 17);
  writer.finish();
  expect_corrupt([&] {
    BitReader reader(bytes);
    get_elias_omega(reader, 16);
  });
  expect_corrupt([&] {
    BitReader reader(bytes);
    get_elias_omega(reader, 17);
    get_elias_gamma(reader, 16);
  });
}

TEST(Elias, NoiseNeverReadsBeyondItsEnd) {
  CounterRng rng(8);
  int refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<uint8_t> noise(rng.next_below(20));
    for (uint8_t& b : noise) b = static_cast<uint8_t>(rng.next_u32());
    BitReader reader(noise);
    try {
      for (;;) {
        const uint32_t v = trial % 2 ? get_elias_omega(reader, 1000) : get_elias_gamma(reader, 1000);
        ASSERT_GE(v, 1u);
        ASSERT_LE(v, 1000u);
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kCorruptData);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 3000);
}

}  // namespace
}  // namespace kpd::coding
