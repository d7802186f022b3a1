// tests: GGUF read and written; what is refused is in gguf_corrupt_test.cc.
#include "kpd/io/gguf.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "base/expect_error.h"
#include "io/gguf_bytes.h"
#include "io/temp_folder.h"
#include "kpd/quant/blocks.h"

namespace kpd::io {
namespace {

using testing::GgufBytes;
class Gguf : public testing::TempFolder {};

std::vector<uint8_t> golden(const std::string& name) {
  std::ifstream in(std::string(KPD_TESTS_DIR "/golden/gguf/") + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<uint8_t> every_type(uint32_t version = 3) {
  GgufBytes b(0, 13, version);
  b.key("u8", 0).number<uint8_t>(200).key("i8", 1).number<int8_t>(-3).key("u16", 2).number<uint16_t>(60000);
  b.key("i16", 3).number<int16_t>(-300).key("u32", 4).number<uint32_t>(4000000000u).key("i32", 5).number<int32_t>(-70000);
  b.key("f32", 6).number(0.1f).key("yes", 7).number<uint8_t>(1).key("text", 8).text("a\nb\xff");
  b.array("list", 8, 2).text("").text("two").key("u64", 10).number(UINT64_MAX).key("i64", 11).number(INT64_MIN);
  b.key("f64", 12).number(0.1);
  return b.out;
}

TEST(GgufParse, ReadsEveryTypeOfValue) {
  for (const uint32_t version : {2u, 3u}) {
    const GgufFile file = parse_gguf(every_type(version), "m.gguf");
    EXPECT_EQ(file.version, version);
    EXPECT_EQ(file.alignment, 32u);
    EXPECT_TRUE(file.tensors.empty());
    const GgufMetadata& m = file.metadata;
    ASSERT_EQ(m.values.size(), 13u);
    EXPECT_EQ(m.values[0].first, "u8");
    EXPECT_EQ(m.number("u8"), 200u);
    EXPECT_EQ(std::get<int64_t>(*m.find("i8")), -3);
    EXPECT_EQ(m.number("u16"), 60000u);
    EXPECT_EQ(m.real("i16"), -300);
    EXPECT_EQ(m.number("u32"), 4000000000u);
    EXPECT_EQ(m.real("i32"), -70000);
    EXPECT_EQ(m.real("f32"), static_cast<double>(0.1f));
    EXPECT_TRUE(m.boolean("yes"));
    EXPECT_EQ(m.text("text"), "a\nb\xff");
    EXPECT_EQ(m.texts("list"), (std::vector<std::string>{"", "two"}));
    EXPECT_EQ(m.number("u64"), UINT64_MAX);
    EXPECT_EQ(std::get<int64_t>(*m.find("i64")), INT64_MIN);
    EXPECT_EQ(m.real("f64"), 0.1);
  }
}

TEST(GgufParse, ReadsArrays) {
  GgufBytes b(0, 8);
  b.array("u8", 0, 3).number<uint8_t>(1).number<uint8_t>(2).number<uint8_t>(255);
  b.array("i16", 3, 2).number<int16_t>(-1).number<int16_t>(7);
  b.array("f32", 6, 2).number(1.5f).number(-2.0f);
  b.array("f64", 12, 1).number(0.1);
  b.array("bool", 7, 3).number<uint8_t>(1).number<uint8_t>(0).number<uint8_t>(1);
  b.array("none", 5, 0);
  b.array("i64", 11, 1).number(INT64_MIN);
  b.array("u64", 10, 2).number<uint64_t>(4).number(UINT64_MAX);
  const GgufMetadata m = parse_gguf(b.out, "m.gguf").metadata;
  EXPECT_EQ(m.integers("u8"), (std::vector<int64_t>{1, 2, 255}));
  EXPECT_EQ(m.reals("u8"), (std::vector<double>{1, 2, 255}));
  EXPECT_EQ(m.integers("i16"), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(m.reals("f32"), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(m.reals("f64"), (std::vector<double>{0.1}));
  EXPECT_EQ(std::get<std::vector<bool>>(*m.find("bool")), (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(m.integers("none").empty());
  EXPECT_EQ(m.integers("i64"), (std::vector<int64_t>{INT64_MIN}));
  EXPECT_KPD_ERROR(kCorruptData, "m.gguf: key 'u64' holds 18446744073709551615, expected an array of signed 64-bit integers",
                   m.integers("u64"));
}

TEST(GgufParse, AccessorsSayWhatIsWrong) {
  const GgufMetadata m = parse_gguf(every_type(), "m.gguf").metadata;
  EXPECT_EQ(m.find("absent"), nullptr);
  EXPECT_KPD_ERROR(kCorruptData, "m.gguf: key 'absent' is missing, expected an integer of 0 or more", m.number("absent"));
  EXPECT_KPD_ERROR(kCorruptData, "m.gguf: key 'i8' is -3, expected an integer of 0 or more", m.number("i8"));
  EXPECT_KPD_ERROR(kCorruptData, "m.gguf: key 'f32' is a real number, expected an integer", m.number("f32"));
  EXPECT_KPD_ERROR(kCorruptData, "key 'text' is a string, expected a number", m.real("text"));
  EXPECT_KPD_ERROR(kCorruptData, "key 'u8' is an unsigned number, expected a bool", m.boolean("u8"));
  EXPECT_KPD_ERROR(kCorruptData, "key 'list' is an array of strings, expected a string", m.text("list"));
  EXPECT_KPD_ERROR(kCorruptData, "key 'text' is a string, expected an array of strings", m.texts("text"));
  EXPECT_KPD_ERROR(kCorruptData, "key 'yes' is a bool, expected an array of numbers", m.reals("yes"));
  EXPECT_KPD_ERROR(kCorruptData, "key 'i8' is a signed number, expected an array of signed 64-bit integers", m.integers("i8"));
}

TEST(GgufParse, ReadsTensors) {
  GgufBytes b(5, 1);
  b.key("general.alignment", 4).number<uint32_t>(64);
  b.tensor("w", {32, 3}, 8, 64).tensor("a", {2, 3, 4}, 1, 192).tensor("b", {5}, 0, 0).tensor("s", {}, 30, 256);
  b.tensor("none", {32, 0}, 2, 64);
  const std::vector<uint8_t> bytes = b.data(258, 64);
  const GgufFile file = parse_gguf(bytes, "m.gguf");
  EXPECT_EQ(file.alignment, 64u);
  ASSERT_EQ(file.tensors.size(), 5u);
  const uint8_t* data = bytes.data() + bytes.size() - 258;
  const WeightEntry& w = file.tensors[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.type, BlockType::kQ8_0);
  EXPECT_EQ(w.shape, (std::vector<uint64_t>{3, 32}));
  EXPECT_EQ(w.count(), 96u);
  EXPECT_EQ(w.bytes.data(), data + 64);
  EXPECT_EQ(w.bytes.size(), 102u);
  EXPECT_EQ(file.tensors[1].shape, (std::vector<uint64_t>{4, 3, 2}));
  EXPECT_EQ(file.tensors[1].bytes.size(), 48u);
  EXPECT_EQ(file.tensors[2].shape, (std::vector<uint64_t>{5}));
  EXPECT_EQ(file.tensors[2].bytes.data(), data);
  EXPECT_TRUE(file.tensors[3].shape.empty());
  EXPECT_EQ(file.tensors[3].count(), 1u);
  EXPECT_EQ(file.tensors[3].bytes.size(), 2u);
  EXPECT_EQ(file.tensors[4].count(), 0u);
  EXPECT_TRUE(file.tensors[4].bytes.empty());
}

GgufMetadata some_metadata() {
  GgufMetadata m;
  const auto add = [&](const char* key, auto v) { m.values.emplace_back(key, GgufValue(std::in_place_type<decltype(v)>, v)); };
  add("u32", uint64_t{4294967295});
  add("u64", uint64_t{4294967296});
  add("i32", int64_t{-2147483648});
  add("i64", int64_t{-2147483649});
  add("f32", 0.5);
  add("f64", 0.1);
  add("large", 1e300);
  add("inf", -kInf);
  add("yes", true);
  add("text", std::string("a\0b", 3));
  add("u32s", std::vector<uint64_t>{1, 2});
  add("u64s", std::vector<uint64_t>{1, UINT64_MAX});
  add("i32s", std::vector<int64_t>{-1, 2});
  add("i64s", std::vector<int64_t>{INT64_MIN, 2});
  add("f32s", std::vector<double>{1, -0.25, kInf});
  add("f64s", std::vector<double>{1, 0.1});
  add("bools", std::vector<bool>{true, false});
  add("texts", std::vector<std::string>{"", "b"});
  add("none", std::vector<std::string>{});
  return m;
}

TEST_F(Gguf, WriterReadsBack) {
  std::vector<uint8_t> data(1000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7);
  const std::span<const uint8_t> all(data);
  const std::vector<WeightEntry> tensors = {{"blk.0.w", BlockType::kQ4_1, {2, 3, 32}, all.first(120)},
                                            {"odd", BlockType::kF16, {7}, all.subspan(3, 14)},
                                            {"s", BlockType::kF32, {}, all.subspan(5, 4)},
                                            {"none", BlockType::kQ4_K, {0, 256}, {}},
                                            {"k", BlockType::kQ6_K, {2, 256}, all.subspan(9, 420)}};
  GgufMetadata m = some_metadata();
  save_gguf(path("m.gguf"), m, tensors);
  const std::vector<uint8_t> bytes = get("m.gguf");
  EXPECT_EQ(bytes.size() % 32, 0u);
  const GgufFile back = parse_gguf(bytes, "m.gguf");
  EXPECT_EQ(back.version, 3u);
  EXPECT_EQ(back.metadata.values, m.values);
  EXPECT_EQ(load_gguf_metadata(path("m.gguf")).values, m.values);
  EXPECT_EQ(load_gguf_metadata(path("m.gguf")).name, path("m.gguf"));
  ASSERT_EQ(back.tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(back.tensors[i].name, tensors[i].name);
    EXPECT_EQ(back.tensors[i].type, tensors[i].type);
    EXPECT_EQ(back.tensors[i].shape, tensors[i].shape);
    EXPECT_TRUE(std::equal(back.tensors[i].bytes.begin(), back.tensors[i].bytes.end(), tensors[i].bytes.begin(),
                           tensors[i].bytes.end()));
  }
  // The layout is this file's: what another file said of its own is left out, and the bytes are the same again.
  m.values.emplace_back("general.alignment", GgufValue(std::in_place_type<uint64_t>, uint64_t{4096}));
  save_gguf(path("again.gguf"), m, back.tensors);
  EXPECT_EQ(get("again.gguf"), bytes);
  save_gguf(path("empty.gguf"), {}, {});
  EXPECT_TRUE(parse_gguf(get("empty.gguf"), "empty.gguf").tensors.empty());
}

TEST_F(Gguf, WriterRefusesWhatTheFormatCannotHold) {
  const std::vector<uint8_t> data(64);
  const auto save = [&](std::vector<WeightEntry> tensors, const GgufMetadata& m = {}) { save_gguf(path("m"), m, tensors); };
  const std::span<const uint8_t> all(data);
  EXPECT_KPD_ERROR(kInvalidArgument, "two tensors are named 'a'",
                   save({{"a", BlockType::kF32, {1}, all.first(4)}, {"a", BlockType::kF32, {1}, all.first(4)}}));
  EXPECT_KPD_ERROR(kInvalidArgument, "a name of 64 bytes, expected at most 63",
                   save({{std::string(64, 'n'), BlockType::kF32, {1}, all.first(4)}}));
  EXPECT_KPD_ERROR(kInvalidArgument, "tensor 'a' has 5 dimensions, expected at most 4",
                   save({{"a", BlockType::kF32, {1, 1, 1, 1, 1}, all.first(4)}}));
  EXPECT_KPD_ERROR(kInvalidArgument, "tensor 'a' has 8 bytes, expected those of 1 values as F32",
                   save({{"a", BlockType::kF32, {1}, all.first(8)}}));
  EXPECT_KPD_ERROR(kInvalidArgument, "tensor 'a' has 5 bytes", save({{"a", BlockType::kF32, {1}, all.first(5)}}));
  EXPECT_KPD_ERROR(kInvalidArgument, "rows of 16 values, expected a multiple of 32 for Q8_0",
                   save({{"a", BlockType::kQ8_0, {2, 16}, all.first(34)}}));
  GgufMetadata m;
  m.values = {{"k", GgufValue(true)}, {"k", GgufValue(true)}};
  EXPECT_KPD_ERROR(kInvalidArgument, "two keys are named 'k'", save({}, m));
  m.values = {{std::string(65536, 'k'), GgufValue(true)}};
  EXPECT_KPD_ERROR(kInvalidArgument, "has 65536 bytes, expected at most 65535", save({}, m));
  EXPECT_TRUE(names().empty());
}

// tests/golden/make_gguf.py wrote small.gguf with the gguf package.
TEST_F(Gguf, ReadsWhatTheGgufPackageWrites) {
  const std::vector<uint8_t> bytes = golden("small.gguf");
  const GgufFile file = parse_gguf(bytes, "small.gguf");
  EXPECT_EQ(file.version, 3u);
  const GgufMetadata& m = file.metadata;
  EXPECT_EQ(m.text("general.architecture"), "llama");
  EXPECT_EQ(m.number("llama.block_count"), 2u);
  EXPECT_EQ(m.real("llama.rope.freq_base"), 10000.0);
  EXPECT_EQ(m.texts("tokenizer.ggml.tokens"), (std::vector<std::string>{"<s>", "a", "\xc3\xa9", ""}));
  EXPECT_EQ(m.reals("tokenizer.ggml.scores"), (std::vector<double>{0, -1, -2.5, -3}));
  EXPECT_EQ(m.integers("tokenizer.ggml.token_type"), (std::vector<int64_t>{3, 1, 1, 1}));
  EXPECT_TRUE(m.boolean("tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(std::get<int64_t>(*m.find("kpd.i8")), -8);
  EXPECT_EQ(m.number("kpd.u64"), uint64_t{1} << 40);
  EXPECT_EQ(m.real("kpd.f64"), 0.1);
  ASSERT_EQ(file.tensors.size(), 6u);
  for (const WeightEntry& t : file.tensors) {
    EXPECT_EQ(t.shape, t.name == "norm" ? std::vector<uint64_t>{64} : (std::vector<uint64_t>{3, 64})) << t.name;
    std::vector<float> values(t.count());
    quant::dequantize_blocks(t.type, t.bytes, 0, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = (static_cast<double>(i) - 96) / 64, off = t.type == BlockType::kF32 ? 0
                                                                        : t.name == "q4_0"        ? 0.11
                                                                                                  : 0.03;
      EXPECT_NEAR(values[i], expected, off) << t.name << " " << i;
    }
  }
  EXPECT_EQ(file.tensors[5].type, BlockType::kQ4_0);
}

GgufMetadata written_metadata() {
  GgufMetadata m = some_metadata();
  m.values.insert(m.values.begin(), {"general.architecture", GgufValue(std::in_place_type<std::string>, "llama")});
  return m;
}

void write_golden(const std::string& to) {
  std::vector<float> values(192);
  for (size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<float>(i) - 96) / 64;
  std::vector<uint8_t> f32(768), q8(204), f16(6);
  quant::quantize_blocks(BlockType::kF32, values, f32);
  quant::quantize_blocks(BlockType::kQ8_0, values, q8);
  quant::quantize_blocks(BlockType::kF16, std::span<const float>(values).first(3), f16);
  const std::vector<WeightEntry> tensors = {
      {"f16", BlockType::kF16, {3}, f16}, {"f32", BlockType::kF32, {2, 3, 32}, f32}, {"q8_0", BlockType::kQ8_0, {3, 64}, q8}};
  save_gguf(to, written_metadata(), tensors);
}

// tests/golden/check_gguf.py reads written.gguf with the gguf package.
TEST_F(Gguf, WritesTheGoldenBytes) {
  write_golden(path("written.gguf"));
  EXPECT_EQ(get("written.gguf"), golden("written.gguf"));
}

// Run by hand: --gtest_also_run_disabled_tests --gtest_filter='*Record*'
TEST_F(Gguf, DISABLED_Record) { write_golden(KPD_TESTS_DIR "/golden/gguf/written.gguf"); }

}  // namespace
}  // namespace kpd::io
