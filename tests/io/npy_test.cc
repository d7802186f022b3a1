// tests: NumPy's files: versions, types, orders, hostile headers, the header that is written.
#include "kpd/io/npy.h"

#include <cstring>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/io/file.h"

namespace kpd::io {
namespace {

using testing::to_bytes;

std::vector<uint8_t> npy(const std::string& header, size_t data_bytes, int major = 1) {
  std::string text = header;
  const size_t prefix = major == 1 ? 10 : 12;
  while ((prefix + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::vector<uint8_t> out = {0x93, 'N', 'U', 'M', 'P', 'Y', static_cast<uint8_t>(major), 0};
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) out.push_back(static_cast<uint8_t>(text.size() >> (8 * i)));
  out.insert(out.end(), text.begin(), text.end());
  for (size_t i = 0; i < data_bytes; ++i) out.push_back(static_cast<uint8_t>(i));
  return out;
}

std::string head(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

TensorEntry parse(const std::vector<uint8_t>& bytes) { return parse_npy(bytes, "a.npy"); }

TEST(Npy, ReadsAllVersionsTypesAndShapes) {
  for (const int major : {1, 2, 3}) {
    const auto bytes = npy(head("<f4", "(2, 3)"), 24, major);
    const TensorEntry entry = parse(bytes);
    EXPECT_EQ(entry.name, "");
    EXPECT_EQ(entry.dtype, DType::kFloat32);
    EXPECT_EQ(entry.shape, (std::vector<uint64_t>{2, 3}));
    EXPECT_EQ(entry.count, 6u);
    EXPECT_EQ(entry.data, bytes.data() + bytes.size() - 24) << "points into the bytes";
  }
  EXPECT_EQ(parse(npy(head("<f2", "(12,)"), 24)).dtype, DType::kFloat16);
  EXPECT_EQ(parse(npy(head("<f2", "(12,)"), 24)).count, 12u);
  EXPECT_EQ(parse(npy(head("<f4", "()"), 4)).count, 1u);
  EXPECT_EQ(parse(npy(head("<f4", "(0, 7)"), 0)).count, 0u);
  EXPECT_EQ(parse(npy(head("<f4", "(2L, 3L)"), 24)).count, 6u);  // Python 2
  EXPECT_EQ(parse(npy("{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"<f4\"}", 12)).count, 3u);
}

TEST(Npy, ReadsEveryTypeThatATensorMayHave) {
  const std::pair<const char*, DType> types[] = {
      {"<f8", DType::kFloat64},      {"|i1", DType::kInt8},  {"<i2", DType::kInt16},    {"<i4", DType::kInt32},
      {"<i8", DType::kInt64},        {"|u1", DType::kUInt8}, {"<u2", DType::kUInt16},   {"<u4", DType::kUInt32},
      {"<u8", DType::kUInt64},       {"|b1", DType::kBool},  {"<V2", DType::kBFloat16}, {"|V2", DType::kBFloat16},
      {"bfloat16", DType::kBFloat16}};
  for (const auto& [descr, dtype] : types) {
    const TensorEntry entry = parse(npy(head(descr, "(3,)"), 3 * dtype_bytes(dtype)));
    EXPECT_EQ(entry.dtype, dtype) << descr;
    EXPECT_EQ(entry.count, 3u);
    if (dtype == DType::kBFloat16) continue;
    const std::vector<uint64_t> shape = {3};
    std::vector<uint8_t> again = npy_header(dtype, shape);
    again.resize(again.size() + 3 * dtype_bytes(dtype));
    EXPECT_EQ(parse(again).dtype, dtype) << descr;
  }
  EXPECT_NE(npy_note(read_npy(npy(head("<V2", "(3,)"), 6), "a.npy")).find("bfloat16"), std::string::npos);
  EXPECT_EQ(npy_note(read_npy(npy(head("<f4", "(3,)"), 12), "a.npy")), "");
}

TEST(Npy, RefusesOtherTypesAndSaysHowToConvert) {
  for (const char* descr : {"<c8", "|O", "<U3", "|V3", "|f4", "=", "", "<f4 ", "<M8", "<f16"}) {
    EXPECT_KPD_ERROR(kUnsupported, "convert with numpy", parse(npy(head(descr, "(3,)"), 24)));
  }
  EXPECT_KPD_ERROR(kUnsupported, "structured",
                   parse(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", 12)));
  EXPECT_KPD_ERROR(kUnsupported, "version 4.0", parse(npy(head("<f4", "(3,)"), 12, 4)));
}

TEST(Npy, OtherOrdersAreCopiedIntoPlace) {
  EXPECT_KPD_ERROR(kUnsupported, "a.npy: Fortran order, expected", parse(npy(head("<f4", "(2, 3)", "True"), 24)));
  EXPECT_KPD_ERROR(kUnsupported, "a.npy: big-endian, expected", parse(npy(head(">f4", "(2, 3)"), 24)));
  const auto native = [](const std::string& header, size_t bytes) {
    const std::vector<uint8_t> file = npy(header, bytes);
    const NpyArray array = read_npy(file, "a.npy");
    std::vector<uint8_t> out(bytes);
    copy_native(array, out);
    return out;
  };
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(native(head("|u1", "(2, 3)", "True"), 6), (Bytes{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(native(head(">i2", "(3,)"), 6), (Bytes{1, 0, 3, 2, 5, 4}));
  EXPECT_EQ(native(head(">i2", "(2, 2)", "True"), 8), (Bytes{1, 0, 5, 4, 3, 2, 7, 6}));
  // Element (i, j, k) of shape (2, 3, 2) lies at i + 2 j + 6 k.
  EXPECT_EQ(native(head("|u1", "(2, 3, 2)", "True"), 12), (Bytes{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}));
  EXPECT_EQ(native(head(">f8", "(0, 3)", "True"), 0), Bytes{});
  // Where both orders are the same nothing is copied.
  for (const char* shape : {"(6,)", "(1, 6)", "(6, 1)"}) EXPECT_EQ(parse(npy(head("|u1", shape, "True"), 6)).count, 6u);
  EXPECT_EQ(parse(npy(head(">u1", "(6,)"), 6)).count, 6u);
}

TEST(Npy, RefusesWrongDataSizes) {
  EXPECT_KPD_ERROR(kCorruptData, "a.npy: byte 128: 20 bytes of data, expected 6 elements of 4 bytes",
                   parse(npy(head("<f4", "(2, 3)"), 20)));
  EXPECT_KPD_ERROR(kCorruptData, "28 bytes of data", parse(npy(head("<f4", "(2, 3)"), 28)));
  EXPECT_KPD_ERROR(kCorruptData, "23 bytes of data", parse(npy(head("<f4", "(2, 3)"), 23)));
  EXPECT_KPD_ERROR(kCorruptData, "4 bytes of data, expected 0", parse(npy(head("<f4", "(0,)"), 4)));
}

TEST(Npy, RefusesHostileShapes) {
  EXPECT_KPD_ERROR(kLimitExceeded, "limit", parse(npy(head("<f4", "(1152921504606846976,)"), 12)));
  EXPECT_KPD_ERROR(kLimitExceeded, "limit", parse(npy(head("<f4", "(4294967296, 4294967296)"), 0)));  // 2^64 wraps to 0
  EXPECT_KPD_ERROR(kLimitExceeded, "limit", parse(npy(head("<f4", "(0, 4294967296, 4294967296)"), 0)));
  EXPECT_KPD_ERROR(kCorruptData, "dimension beyond 64 bits", parse(npy(head("<f4", "(18446744073709551616,)"), 12)));
  EXPECT_KPD_ERROR(kCorruptData, "expected a dimension", parse(npy(head("<f4", "(-3,)"), 12)));
  EXPECT_KPD_ERROR(kCorruptData, "expected a dimension", parse(npy(head("<f4", "(,)"), 12)));
  EXPECT_KPD_ERROR(kCorruptData, "header", parse(npy(head("<f4", "(3.0,)"), 12)));
  EXPECT_KPD_ERROR(kCorruptData, "expected a dimension", parse(npy(head("<f4", "((3,),)"), 12)));
  std::string many = "(";
  for (int i = 0; i < 17; ++i) many += "1,";
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 16 dimensions", parse(npy(head("<f4", many + ")"), 4)));
  Limits limits;
  limits.max_elements = 5;
  EXPECT_KPD_ERROR(kLimitExceeded, "limit of 5", parse_npy(npy(head("<f4", "(6,)"), 24), "a.npy", limits));
}

TEST(Npy, RefusesMalformedHeaders) {
  const std::vector<std::string> bad = {"",
                                        "{",
                                        "}",
                                        "{}",
                                        "{'descr': '<f4'}",
                                        "[]",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
                                        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'extra': 1}",
                                        "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
                                        "{'descr': '<f4 , 'fortran_order': False, 'shape': (3,)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
                                        "{'descr' '<f4', 'fortran_order': False, 'shape': (3,)}",
                                        "{'descr': '<f4\\x00', 'fortran_order': False, 'shape': (3,)}",
                                        "{'descr': <f4, 'fortran_order': False, 'shape': (3,)}",
                                        std::string(5, '\0'),
                                        std::string(500, '('),
                                        std::string(500, '{')};
  for (const std::string& text : bad) {
    EXPECT_KPD_ERROR(kCorruptData, "a.npy: byte ", parse(npy(text, 12)));
  }
}

TEST(Npy, EveryTruncationAndExtensionIsAnError) {
  const auto whole = npy(head("<f4", "(2, 3)"), 24);
  for (size_t n = 0; n < whole.size(); ++n) {
    // An exact-size copy, so that a sanitizer sees any read beyond it.
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<long>(n));
    EXPECT_KPD_ERROR(kCorruptData, "a.npy: byte ", parse(cut));
  }
  auto longer = whole;
  longer.push_back(0);
  EXPECT_KPD_ERROR(kCorruptData, "25 bytes of data", parse(longer));
}

TEST(Npy, HugeHeaderLengths) {
  auto bytes = npy(head("<f4", "(3,)"), 12, 2);
  for (int i = 8; i < 12; ++i) bytes[i] = 0xff;
  EXPECT_KPD_ERROR(kLimitExceeded, "header of 4294967295 bytes", parse(bytes));
  bytes[11] = 0x0f;
  EXPECT_KPD_ERROR(kCorruptData, "byte 12: expected 268435455 bytes of header", parse(bytes));
}

TEST(Npy, MisalignedDataIsRead) {
  std::vector<uint8_t> bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
  std::string text = head("<f4", "(1,)");
  while ((10 + text.size()) % 4 != 1) text += ' ';
  bytes[8] = static_cast<uint8_t>(text.size());
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.resize(bytes.size() + 4);
  bytes.back() = 0x40;
  std::vector<float> value(1);
  load_floats(parse(bytes).view(), 0, value);
  EXPECT_EQ(value[0], 2.0f);
}

TEST(Npy, HeaderIsAlignedAndReadsBack) {
  for (const std::vector<uint64_t>& shape :
       std::vector<std::vector<uint64_t>>{{}, {5}, {2, 3}, {0}, {1, 1, 1, 1, 1, 1, 1, 1, 5}}) {
    std::vector<uint8_t> bytes = npy_header(DType::kFloat16, shape);
    EXPECT_EQ(bytes.size() % 64, 0u);
    EXPECT_EQ(bytes.back(), '\n');
    uint64_t count = 1;
    for (const uint64_t d : shape) count *= d;
    bytes.resize(bytes.size() + 2 * count);
    EXPECT_EQ(parse(bytes).shape, shape);
  }
  EXPECT_KPD_ERROR(kInvalidArgument, "no bfloat16", npy_header(DType::kBFloat16, {}));
}

// The bytes that numpy 2.4 writes before the data of np.arange(3, dtype='<f4').
TEST(Npy, HeaderEqualsNumpys) {
  const std::vector<uint64_t> shape = {3};
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  expected.append(128 - 1 - expected.size(), ' ').append("\n");
  EXPECT_EQ(npy_header(DType::kFloat32, shape), to_bytes(expected));
}

}  // namespace
}  // namespace kpd::io
