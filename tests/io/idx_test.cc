// tests: MNIST's files of images and labels, plain and compressed, cut and damaged.
#include "kpd/io/idx.h"

#include <zlib.h>

#include "base/expect_error.h"
#include "io/temp_folder.h"

namespace kpd::io {
namespace {

std::vector<uint8_t> idx(const std::vector<uint32_t>& dims, size_t data_bytes, uint8_t type = 8) {
  std::vector<uint8_t> out = {0, 0, type, static_cast<uint8_t>(dims.size())};
  for (const uint32_t d : dims) {
    for (int i = 3; i >= 0; --i) out.push_back(static_cast<uint8_t>(d >> (8 * i)));
  }
  for (size_t i = 0; i < data_bytes; ++i) out.push_back(static_cast<uint8_t>(i * 7));
  return out;
}

std::vector<uint8_t> gzip(const std::vector<uint8_t>& data) {
  std::vector<uint8_t> out(compressBound(data.size()) + 64);
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = const_cast<Bytef*>(data.data());
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

IdxArray parse(const std::vector<uint8_t>& bytes) { return parse_idx(bytes, "images"); }

class Idx : public testing::TempFolder {};

TEST_F(Idx, PlainAndCompressedReadTheSame) {
  const auto plain = idx({5, 28, 28}, 5 * 28 * 28);
  for (const auto& bytes : {plain, gzip(plain)}) {
    const IdxArray array = parse(bytes);
    EXPECT_EQ(array.shape, (std::vector<uint64_t>{5, 28, 28}));
    EXPECT_EQ(array.data, std::vector<uint8_t>(plain.begin() + 16, plain.end()));
    EXPECT_EQ(load_idx(put("x", bytes)).data, array.data);
  }
  EXPECT_EQ(parse(idx({9}, 9)).shape, (std::vector<uint64_t>{9}));
  EXPECT_TRUE(parse(idx({0, 28}, 0)).data.empty());
  EXPECT_TRUE(parse(gzip(idx({0, 28}, 0))).data.empty());
}

TEST_F(Idx, RefusesWrongHeaders) {
  auto bytes = idx({9}, 9);
  bytes[1] = 1;
  EXPECT_KPD_ERROR(kCorruptData, "images: byte 0: expected the two zero bytes", parse(bytes));
  EXPECT_KPD_ERROR(kUnsupported, "byte 2: IDX element type 13, expected 8", parse(idx({9}, 36, 13)));
  EXPECT_KPD_ERROR(kUnsupported, "element type 13", parse(gzip(idx({9}, 36, 13))));
  EXPECT_KPD_ERROR(kCorruptData, "byte 3: no dimensions", parse(idx({}, 0)));
  EXPECT_KPD_ERROR(kLimitExceeded, "17 dimensions", parse(idx(std::vector<uint32_t>(17, 1), 1)));
}

TEST_F(Idx, RefusesWrongSizes) {
  EXPECT_KPD_ERROR(kCorruptData, "images: byte 12: 7 bytes of data, expected 6", parse(idx({2, 3}, 7)));
  EXPECT_KPD_ERROR(kCorruptData, "more data than the dimensions give", parse(gzip(idx({2, 3}, 7))));
  EXPECT_KPD_ERROR(kCorruptData, "ends within the elements", parse(gzip(idx({2, 3}, 5))));
  EXPECT_KPD_ERROR(kLimitExceeded, "limit", parse(idx({0xffffffff, 0xffffffff, 0xffffffff}, 0)));
  EXPECT_KPD_ERROR(kLimitExceeded, "limit", parse(gzip(idx({65536, 65536, 65536, 65536}, 0))));  // 2^64 wraps to 0
  EXPECT_KPD_ERROR(kCorruptData, "expected 4294967295", parse(idx({0xffffffff}, 3)));
}

TEST_F(Idx, GzipBombsAreRefusedBeforeTheyGrow) {
  // Dimensions of 64 GiB in 40 compressed bytes: refused by arithmetic, nothing is allocated.
  EXPECT_KPD_ERROR(kCorruptData, "compressed bytes can hold", parse(gzip(idx({65536, 65536, 16}, 0))));
  // 8 MiB of zeros behind dimensions of 100 bytes: decompression stops at 101.
  auto bomb = idx({100}, 0);
  bomb.resize(bomb.size() + (8 << 20));
  EXPECT_KPD_ERROR(kCorruptData, "more data than the dimensions give", parse(gzip(bomb)));
}

TEST_F(Idx, EveryTruncationExtensionAndFlipOfCompressedDataIsAnError) {
  const auto plain = idx({3, 4, 5}, 60);
  for (const auto& whole : {plain, gzip(plain)}) {
    for (size_t n = 0; n < whole.size(); ++n) {
      const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<long>(n));
      EXPECT_KPD_ERROR(kCorruptData, "images: byte ", parse(cut));
    }
    auto longer = whole;
    longer.push_back(0);
    EXPECT_KPD_ERROR(kCorruptData, "images: byte ", parse(longer));
  }
  const auto zipped = gzip(plain);
  int harmless = 0;
  for (size_t bit = 80; bit < 8 * zipped.size(); ++bit) {  // behind gzip's own header, which has free fields
    auto flipped = zipped;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    try {  // the few bits that fill up the last byte before the checksum mean nothing
      EXPECT_EQ(parse(flipped).data, std::vector<uint8_t>(plain.begin() + 16, plain.end())) << bit;
      ++harmless;
    } catch (const Error&) {
    }
  }
  EXPECT_LT(harmless, 8);
}

}  // namespace
}  // namespace kpd::io
