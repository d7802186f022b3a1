// tests: the checked reader and writer: values read back, what a short read says, lengths that would wrap.
#include "kpd/base/bytes.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/expect_error.h"

namespace kpd {
namespace {

TEST(Bytes, WrittenValuesReadBack) {
  std::vector<uint8_t> buffer(64);
  ByteWriter writer(buffer);
  writer.u8(0x12);
  writer.u16(0x3456);
  writer.u32(0x789abcde);
  writer.u64(0x0123456789abcdefu);
  writer.i16(-5);
  writer.f32(-1.5f);
  writer.text("kpd");
  const std::vector<uint8_t> extra = {9, 8};
  writer.bytes(extra);
  writer.reserve(1)[0] = 77;
  EXPECT_EQ(writer.size(), 27u);
  EXPECT_EQ(writer.capacity(), 64u);
  EXPECT_EQ(buffer[1], 0x56);  // little-endian
  EXPECT_EQ(buffer[3], 0xde);

  ByteReader reader({buffer.data(), writer.size()}, "x.kpd");
  EXPECT_EQ(reader.u8("a"), 0x12);
  EXPECT_EQ(reader.u16("b"), 0x3456);
  EXPECT_EQ(reader.u32("c"), 0x789abcdeu);
  EXPECT_EQ(reader.u64("d"), 0x0123456789abcdefu);
  EXPECT_EQ(reader.i16("e"), -5);
  EXPECT_EQ(reader.f32("f"), -1.5f);
  const auto text = reader.take(3, "g");
  EXPECT_EQ(std::string(text.begin(), text.end()), "kpd");
  reader.skip(2, "h");
  EXPECT_EQ(reader.remaining(), 1u);
  EXPECT_FALSE(reader.at_end());
  EXPECT_EQ(reader.u8("i"), 77);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(reader.offset(), 27u);
}

TEST(Bytes, DoublesReadBack) {
  const std::vector<uint8_t> bytes = {0, 0, 0, 0, 0, 0, 0xf8, 0x3f};
  EXPECT_EQ(ByteReader(bytes).f64("x"), 1.5);
}

TEST(Bytes, ShortReadNamesFileOffsetAndExpectation) {
  const std::vector<uint8_t> bytes(7);
  ByteReader reader(bytes, "x.kpd", 100);
  reader.skip(4, "head");
  EXPECT_KPD_ERROR(kCorruptData, "x.kpd: byte 104: expected 4 bytes of seed, 3 left", reader.u32("seed"));
  EXPECT_EQ(reader.offset(), 4u) << "a failed read moves nothing";
  EXPECT_KPD_ERROR(kCorruptData, "expected 8 bytes of length", reader.u64("length"));
  EXPECT_EQ(reader.u16("rest"), 0);
  EXPECT_EQ(reader.u8("rest"), 0);
  EXPECT_KPD_ERROR(kCorruptData, "byte 107: expected 1 byte of end, 0 left", reader.u8("end"));
  EXPECT_NO_THROW(reader.skip(0, "nothing"));
}

TEST(Bytes, HugeLengthsDoNotWrap) {
  const std::vector<uint8_t> bytes(16);
  ByteReader reader(bytes);
  reader.skip(8, "head");
  for (const uint64_t n : {uint64_t{9}, uint64_t{1} << 32, uint64_t{1} << 63, std::numeric_limits<uint64_t>::max(),
                           std::numeric_limits<uint64_t>::max() - 7}) {
    EXPECT_KPD_ERROR(kCorruptData, "byte 8", reader.take(n, "payload"));
  }
}

TEST(Bytes, CorruptAndThrowAt) {
  const std::vector<uint8_t> bytes(16);
  ByteReader reader(bytes, "m", 1000);
  reader.skip(3, "head");
  EXPECT_KPD_ERROR(kCorruptData, "m: byte 1003: 17 is no method", reader.corrupt(17, " is no method"));
  EXPECT_KPD_ERROR(kUnsupported, "m: byte 1001: old", reader.throw_at(ErrorCode::kUnsupported, 1, "old"));
}

TEST(Bytes, WriterNeverPassesItsEnd) {
  std::vector<uint8_t> buffer(12, 0xaa);
  ByteWriter writer({buffer.data(), 5});
  writer.u32(1);
  EXPECT_KPD_ERROR(kInvalidArgument, "2 bytes to write, 1 of 5 left", writer.u16(1));
  EXPECT_KPD_ERROR(kInvalidArgument, "output buffer: byte 4", writer.reserve(std::numeric_limits<size_t>::max()));
  writer.u8(2);
  EXPECT_KPD_ERROR(kInvalidArgument, "0 of 5 left", writer.u8(3));
  EXPECT_NO_THROW(writer.bytes({}));
  for (size_t i = 5; i < buffer.size(); ++i) EXPECT_EQ(buffer[i], 0xaa);
}

TEST(Bytes, LoadsAndStoresAreLittleEndian) {
  uint8_t b[8];
  store_u64(b, 0x0807060504030201u);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(b[i], i + 1);
  EXPECT_EQ(load_u64(b), 0x0807060504030201u);
  EXPECT_EQ(load_u32(b + 4), 0x08070605u);
  EXPECT_EQ(load_u16(b + 6), 0x0807u);
  store_u32(b, 0xfffefdfcu);
  EXPECT_EQ(load_u32(b), 0xfffefdfcu);
  store_u16(b, 0x1234);
  EXPECT_EQ(b[0], 0x34);
}

}  // namespace
}  // namespace kpd
