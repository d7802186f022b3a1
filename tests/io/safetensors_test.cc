// tests: safetensors: every type, overlaps and gaps, hostile headers, what is written reads back.
#include "kpd/io/safetensors.h"

#include <array>
#include <cstring>
#include <string>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/base/bytes.h"

namespace kpd::io {
namespace {

using testing::to_bytes;

std::vector<uint8_t> file_of(const std::string& json, size_t data_bytes, bool pad = true) {
  std::string text = json;
  if (pad) text.append((8 - text.size() % 8) % 8, ' ');
  std::vector<uint8_t> out(8 + text.size() + data_bytes);
  store_u64(out.data(), text.size());
  std::memcpy(out.data() + 8, text.data(), text.size());
  for (size_t i = 0; i < data_bytes; ++i) out[8 + text.size() + i] = static_cast<uint8_t>(i);
  return out;
}

std::string item(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

SafetensorsFile parse(const std::vector<uint8_t>& bytes) { return parse_safetensors(bytes, "m.safetensors"); }

const std::string kTwo = "{" + item("a", "F32", "[2,3]", "[0,24]") + "," + item("b", "BF16", "[4]", "[24,32]") + "}";

TEST(Safetensors, ReadsTensorsInTheHeadersOrder) {
  const auto bytes = file_of("{" + item("z", "F16", "[2,2]", "[32,40]") + "," + item("a/b", "F32", "[2,3]", "[0,24]") +
                                 ",\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"}," + item("s", "BF16", "[]", "[40,42]") +
                                 "," + item("e", "F32", "[0,9]", "[32,32]") + "," + item("m", "BF16", "[4]", "[24,32]") + "}",
                             42);
  const SafetensorsFile file = parse(bytes);
  ASSERT_EQ(file.tensors.size(), 5u);
  EXPECT_EQ(file.metadata, (Metadata{{"format", "pt"}, {"k", "v"}}));
  EXPECT_EQ(file.tensors[0].name, "z");
  EXPECT_EQ(file.tensors[0].dtype, DType::kFloat16);
  EXPECT_EQ(file.tensors[0].data, bytes.data() + bytes.size() - 42 + 32);
  EXPECT_EQ(file.tensors[1].name, "a/b");
  EXPECT_EQ(file.tensors[1].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(file.tensors[2].count, 1u);
  EXPECT_TRUE(file.tensors[2].shape.empty());
  EXPECT_EQ(file.tensors[3].count, 0u);
  EXPECT_EQ(file.tensors[4].dtype, DType::kBFloat16);
  EXPECT_TRUE(parse(file_of("{}", 0)).tensors.empty());
}

TEST(Safetensors, RefusesOverlapsGapsAndRanges) {
  const auto two = [](const char* a, const char* b) {
    return "{" + item("a", "F32", "[2]", a) + "," + item("b", "F32", "[2]", b) + "}";
  };
  EXPECT_KPD_ERROR(kCorruptData, "overlaps", parse(file_of(two("[0,8]", "[4,12]"), 12)));
  EXPECT_KPD_ERROR(kCorruptData, "overlaps", parse(file_of(two("[0,8]", "[0,8]"), 8)));
  EXPECT_KPD_ERROR(kCorruptData, "tensor 'b' begins at offset 12, expected 8 (bytes that belong to none)",
                   parse(file_of(two("[0,8]", "[12,20]"), 20)));
  EXPECT_KPD_ERROR(kCorruptData, "begins at offset 4", parse(file_of("{" + item("a", "F32", "[2]", "[4,12]") + "}", 12)));
  EXPECT_KPD_ERROR(kCorruptData, "4 bytes of data that belong to no tensor", parse(file_of(two("[0,8]", "[8,16]"), 20)));
  EXPECT_KPD_ERROR(kCorruptData, "8 bytes of data that belong to no tensor", parse(file_of("{}", 8)));
  EXPECT_KPD_ERROR(kCorruptData, "tensor 'b' lies at offsets 8 to 16, expected a range within 12 bytes",
                   parse(file_of(two("[0,8]", "[8,16]"), 12)));
  EXPECT_KPD_ERROR(kCorruptData, "lies at offsets 8 to 0", parse(file_of(two("[8,0]", "[8,16]"), 16)));
  EXPECT_KPD_ERROR(kCorruptData, "lies at offsets", parse(file_of(two("[0,18446744073709551608]", "[8,16]"), 16)));
  EXPECT_KPD_ERROR(kCorruptData, "expected 2 elements of 4 bytes",
                   parse(file_of("{" + item("a", "F32", "[2]", "[0,12]") + "}", 12)));
  EXPECT_KPD_ERROR(kCorruptData, "expected 2 elements of 4 bytes",
                   parse(file_of("{" + item("a", "F32", "[2]", "[0,9]") + "}", 9)));
}

TEST(Safetensors, ReadsMisalignedTensors) {
  const std::string json = "{" + item("a", "F16", "[1]", "[0,2]") + "," + item("b", "F32", "[1]", "[2,6]") + "}";
  const std::vector<uint8_t> file = file_of(json, 6);
  std::vector<float> value(1);
  load_floats(parse(file).tensors[1].view(), 0, value);
  float expected;
  std::memcpy(&expected, file.data() + file.size() - 4, 4);
  EXPECT_EQ(value[0], expected);
  std::string odd = "{" + item("a", "F32", "[1]", "[0,4]") + "}";
  while (odd.size() % 4 == 0) odd += ' ';
  EXPECT_EQ(parse(file_of(odd, 4, false)).tensors[0].count, 1u);
}

TEST(Safetensors, ReadsAndWritesEveryType) {
  const char* names[] = {"F32", "BF16", "F16", "F64", "I8",   "I16",     "I32",    "I64",
                         "U8",  "U16",  "U32", "U64", "BOOL", "F8_E4M3", "F8_E5M2"};
  for (size_t i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const size_t n = 3 * dtype_bytes(dtype);
    const std::string json = "{" + item("a", names[i], "[3]", "[0," + std::to_string(n) + "]") + "}";
    const std::vector<uint8_t> bytes = file_of(json, n);
    const SafetensorsFile file = parse(bytes);
    EXPECT_EQ(file.tensors[0].dtype, dtype);
    std::vector<size_t> order;
    const std::vector<uint8_t> header = safetensors_header(file.tensors, {}, order);
    EXPECT_NE(std::string(header.begin(), header.end()).find(std::string("\"") + names[i] + "\""), std::string::npos);
  }
}

TEST(Safetensors, RefusesDuplicates) {
  const std::string a = item("a", "F32", "[1]", "[0,4]"), b = item("a", "F32", "[1]", "[4,8]");
  EXPECT_KPD_ERROR(kCorruptData, "tensor 'a' is given twice", parse(file_of("{" + a + "," + b + "}", 8)));
  EXPECT_KPD_ERROR(kCorruptData, "key 'dtype' of tensor 'a' is given twice",
                   parse(file_of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4)));
  EXPECT_KPD_ERROR(kCorruptData, "__metadata__ is given twice", parse(file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0)));
}

TEST(Safetensors, ListsTensorsOfAnyType) {
  const auto bytes = file_of("{" + item("a", "C64", "[1]", "[0,8]") + "," + item("b", "F32", "[1]", "[8,12]") + "}", 12);
  const auto records = list_safetensors(bytes, "m");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].type, "C64");
  EXPECT_FALSE(records[0].dtype.has_value());
  EXPECT_EQ(records[0].bytes.size(), 8u);
  EXPECT_EQ(records[1].dtype, DType::kFloat32);
  EXPECT_EQ(records[1].count(), 1u);
  // What bytes and shape bound of others is bound of these too.
  EXPECT_KPD_ERROR(kCorruptData, "expected a range within 8",
                   list_safetensors(file_of("{" + item("a", "X", "[1]", "[0,9]") + "}", 8), "m"));
  EXPECT_KPD_ERROR(kCorruptData, "belong to no tensor",
                   list_safetensors(file_of("{" + item("a", "X", "[1]", "[0,7]") + "}", 8), "m"));
  EXPECT_KPD_ERROR(kLimitExceeded, "more elements in the shape",
                   list_safetensors(file_of("{" + item("a", "X", "[4294967296,4294967296]", "[0,8]") + "}", 8), "m"));
  Limits limits;
  limits.max_elements = limits.max_total_elements = ~uint64_t{0};
  const std::string huge = "[9223372036854775808]";
  const std::string three =
      item("a", "X", huge, "[0,1]") + "," + item("b", "X", huge, "[1,2]") + "," + item("c", "X", huge, "[2,3]");
  limits.max_total_elements = ~uint64_t{0} - 1;
  EXPECT_KPD_ERROR(kLimitExceeded, "elements, the limit is", list_safetensors(file_of("{" + three + "}", 3), "m", limits));
}

TEST(Safetensors, RefusesUnknownTypesAndParts) {
  EXPECT_KPD_ERROR(kUnsupported, "tensor 'a' has elements of type 'C64', expected one of F32, BF16",
                   parse(file_of("{" + item("a", "C64", "[1]", "[0,8]") + "}", 8)));
  EXPECT_KPD_ERROR(kUnsupported, "'f32'", parse(file_of("{" + item("a", "f32", "[1]", "[0,4]") + "}", 4)));
  EXPECT_KPD_ERROR(kCorruptData, "key 'extra'", parse(file_of("{\"a\":{\"dtype\":\"F32\",\"extra\":1}}", 4)));
  EXPECT_KPD_ERROR(kCorruptData, "expected dtype, shape and data_offsets",
                   parse(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4)));
  EXPECT_KPD_ERROR(kCorruptData, "expected text", parse(file_of("{\"__metadata__\":{\"a\":1}}", 0)));
  EXPECT_KPD_ERROR(kCorruptData, "expected text", parse(file_of("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0)));
  EXPECT_KPD_ERROR(kCorruptData, "expected an object of strings", parse(file_of("{\"__metadata__\":\"a\"}", 0)));
}

TEST(Safetensors, RefusesWrongShapesAndOffsets) {
  const auto shape = [](const std::string& s) { return file_of("{" + item("a", "F32", s, "[0,4]") + "}", 4); };
  EXPECT_KPD_ERROR(kCorruptData, "number -1 in the header, expected dimensions", parse(shape("[-1]")));
  EXPECT_KPD_ERROR(kCorruptData, "number 1.0 in the header", parse(shape("[1.0]")));
  EXPECT_KPD_ERROR(kCorruptData, "number 1e0 in the header", parse(shape("[1e0]")));
  EXPECT_KPD_ERROR(kCorruptData, "not valid JSON", parse(shape("[NaN]")));
  EXPECT_KPD_ERROR(kCorruptData, "not valid JSON", parse(shape("[Infinity]")));
  EXPECT_KPD_ERROR(kCorruptData, "number 99999999999999999999 in the header", parse(shape("[99999999999999999999]")));
  EXPECT_KPD_ERROR(kCorruptData, "text '1' in the header, expected dimensions", parse(shape("[\"1\"]")));
  EXPECT_KPD_ERROR(kCorruptData, "an array in the header", parse(shape("[[1]]")));
  EXPECT_KPD_ERROR(kCorruptData, "null in the header", parse(shape("null")));
  EXPECT_KPD_ERROR(kCorruptData, "an object in the header", parse(shape("{}")));
  EXPECT_KPD_ERROR(kLimitExceeded, "limit", parse(shape("[4294967296,4294967296]")));
  EXPECT_KPD_ERROR(kLimitExceeded, "limit", parse(shape("[0,4294967296,4294967296]")));
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 16 dimensions", parse(shape("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]")));
  const auto offsets = [](const std::string& o) { return file_of("{" + item("a", "F32", "[1]", o) + "}", 4); };
  EXPECT_KPD_ERROR(kCorruptData, "expected two numbers in data_offsets", parse(offsets("[0]")));
  EXPECT_KPD_ERROR(kCorruptData, "number 8 in the header, expected two offsets", parse(offsets("[0,4,8]")));
  EXPECT_KPD_ERROR(kCorruptData, "expected two numbers", parse(offsets("[]")));
}

TEST(Safetensors, JsonBombsAreRefusedWhereTheyStand) {
  const int depth = 1000000;
  std::string nested = "{\"a\":";
  for (int i = 0; i < depth; ++i) nested += "[";
  EXPECT_KPD_ERROR(kCorruptData, "an array in the header, expected an object with dtype", parse(file_of(nested, 0)));
  std::string objects;
  for (int i = 0; i < depth; ++i) objects += "{\"a\":";
  EXPECT_KPD_ERROR(kCorruptData, "byte 17: key 'a', expected dtype", parse(file_of(objects, 0)));
  EXPECT_KPD_ERROR(kCorruptData, "an array in the header",
                   parse(file_of("{\"a\":{\"shape\":" + std::string(depth, '[') + std::string(depth, ']') + "}}", 0)));
  Limits limits;
  limits.max_tensors = 3;
  std::string many = "{\"__metadata__\":{";
  for (int i = 0; i < 9; ++i) many += str(i == 0 ? "" : ",", "\"", i, "\":\"\"");
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 3 metadata entries", parse_safetensors(file_of(many + "}}", 0), "m", limits));
  std::string tensors = "{";
  for (int i = 0; i < 9; ++i) tensors += str(i == 0 ? "" : ",", item(str(i), "F32", "[0]", "[0,0]"));
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 3 tensors", parse_safetensors(file_of(tensors + "}", 0), "m", limits));
}

TEST(Safetensors, OtherLimits) {
  Limits limits;
  limits.max_total_elements = 9;
  EXPECT_KPD_ERROR(kLimitExceeded, "10 elements, the limit is 9", parse_safetensors(file_of(kTwo, 32), "m", limits));
  EXPECT_KPD_ERROR(kLimitExceeded, "a name of 5000 bytes",
                   parse(file_of("{" + item(std::string(5000, 'n'), "F32", "[1]", "[0,4]") + "}", 4)));
  limits.max_header_bytes = 16;
  EXPECT_KPD_ERROR(kLimitExceeded, "the limit is 16", parse_safetensors(file_of(kTwo, 32), "m", limits));
}

TEST(Safetensors, HeaderLengths) {
  auto bytes = file_of(kTwo, 32);
  for (const uint64_t n : {uint64_t{1} << 20, uint64_t{1} << 40, uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7}) {
    store_u64(bytes.data(), n);
    EXPECT_KPD_ERROR(kCorruptData, "m.safetensors: byte 0: header of ", parse(bytes));
  }
  store_u64(bytes.data(), 0);
  EXPECT_KPD_ERROR(kCorruptData, "byte 8: expected '{'", parse(bytes));
  EXPECT_KPD_ERROR(kCorruptData, "byte 8: expected '{'", parse(file_of("  {}", 0)));
  EXPECT_KPD_ERROR(kCorruptData, "byte 8: expected '{'", parse(file_of("[]", 0)));
}

TEST(Safetensors, EveryTruncationAndExtensionIsAnError) {
  const auto whole = file_of(kTwo, 32);
  EXPECT_EQ(parse(whole).tensors.size(), 2u);
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<long>(n));
    EXPECT_KPD_ERROR(kCorruptData, "m.safetensors", parse(cut));
  }
  for (size_t n = 8; n < whole.size() - 32; ++n) {  // a header cut short and its length with it
    auto cut = whole;
    store_u64(cut.data(), n - 8);
    SCOPED_TRACE(n);
    EXPECT_KPD_ERROR(kCorruptData, "m.safetensors: byte ", parse(cut));
  }
  auto longer = whole;
  longer.push_back(0);
  EXPECT_KPD_ERROR(kCorruptData, "belong to no tensor", parse(longer));
}

TEST(Safetensors, MalformedJson) {
  for (const char* text :
       {"{", "{\"a\"", "{\"a\":}", "{]", "{}}", "{}{}", "{\"a\":1}", "{\"a\":true}", "{a:1}", "{\"a\":{}}", "{\"\xff\":{}}",
        "{\"a\":{\"dtype\":F32}}", "{\"a\":\"\\u12\"}", "{/**/}", "{\"a\":{\"shape\":[1,]}}"}) {
    EXPECT_KPD_ERROR(kCorruptData, "m.safetensors: byte ", parse(file_of(text, 4)));
  }
  EXPECT_KPD_ERROR(kCorruptData, "not valid JSON", parse(file_of(std::string("{\"a\0b\":{}}", 10), 0)));
  EXPECT_KPD_ERROR(kCorruptData, "byte 26: number 7 in the header",
                   parse(file_of("{\"aaa\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4)));
}

TEST(Safetensors, WriterReadsBack) {
  const std::vector<float> f = {1, 2, 3};
  const std::vector<uint16_t> h = {1, 2, 3};
  const std::vector<TensorEntry> tensors = {{"odd", DType::kFloat16, {3}, h.data(), 3},
                                            {"w \"quoted\" \\ é\n", DType::kFloat32, {3, 1}, f.data(), 3},
                                            {"", DType::kBFloat16, {}, h.data(), 1},
                                            {"none", DType::kFloat32, {0}, nullptr, 0}};
  const Metadata metadata = {{"a", "1"}, {"b", ""}};
  std::vector<size_t> order;
  std::vector<uint8_t> bytes = safetensors_header(tensors, metadata, order);
  EXPECT_EQ(bytes.size() % 8, 0u);
  for (const size_t i : order) {
    const auto* p = static_cast<const uint8_t*>(tensors[i].data);
    if (tensors[i].count > 0) bytes.insert(bytes.end(), p, p + tensors[i].count * dtype_bytes(tensors[i].dtype));
  }
  const SafetensorsFile back = parse(bytes);
  EXPECT_EQ(back.metadata, metadata);
  ASSERT_EQ(back.tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(back.tensors[i].name, tensors[i].name);
    EXPECT_EQ(back.tensors[i].dtype, tensors[i].dtype);
    EXPECT_EQ(back.tensors[i].shape, tensors[i].shape);
    if (tensors[i].count > 0) {
      EXPECT_EQ(std::memcmp(back.tensors[i].data, tensors[i].data, tensors[i].count * dtype_bytes(tensors[i].dtype)), 0);
    }
  }
}

TEST(Safetensors, WriterRefusesWhatItCouldNotRead) {
  const float f = 1;
  std::vector<size_t> order;
  const auto header = [&](const std::vector<std::string>& names) {
    std::vector<TensorEntry> tensors;
    for (const auto& name : names) tensors.push_back({name, DType::kFloat32, {1}, &f, 1});
    return safetensors_header(tensors, {}, order);
  };
  EXPECT_KPD_ERROR(kInvalidArgument, "two tensors are named 'a'", header({"a", "b", "a"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "reserves", header({"__metadata__"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "not UTF-8", header({"\xff"}));
}

}  // namespace
}  // namespace kpd::io
