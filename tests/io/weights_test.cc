// tests: which files a path stands for, and what is wrong with them.
#include "kpd/io/weights.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/expect_error.h"
#include "io/gguf_bytes.h"
#include "io/temp_folder.h"
#include "kpd/base/bytes.h"
#include "kpd/io/safetensors.h"

namespace kpd::io {
namespace {

using testing::GgufBytes;
using testing::to_bytes;

constexpr const char* kOne = "model-00001-of-00002.safetensors";
constexpr const char* kTwo = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

class WeightsTest : public testing::TempFolder {
 protected:
  const std::vector<float> floats_ = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> halves_ = {1, 2, 3, 4};

  // float32 [2, 3], or one of the 16-bit types, [4].
  TensorEntry tensor(const std::string& name, DType dtype = DType::kFloat32) const {
    if (dtype == DType::kFloat32) return {name, dtype, {2, 3}, floats_.data(), 6};
    return {name, dtype, {4}, halves_.data(), 4};
  }
  void put_shard(const std::string& name, const std::vector<TensorEntry>& tensors) const {
    save_safetensors(path(name), tensors);
  }
  void put_index(const std::string& map) const {
    put(kIndex, to_bytes("{\"metadata\":{\"total_size\":64},\"weight_map\":" + map + "}"));
  }
  void put_shards() const {
    put_shard(kOne, {tensor("a"), tensor("b", DType::kFloat16)});
    put_shard(kTwo, {tensor("c", DType::kBFloat16)});
  }
  static std::string two_shards() { return str("{\"a\":\"", kOne, "\",\"c\":\"", kTwo, "\",\"b\":\"", kOne, "\"}"); }
};

void expect_floats(const Weights& w, const std::string& name, const std::vector<float>& values) {
  const WeightEntry* t = w.find(name);
  ASSERT_NE(t, nullptr) << name;
  EXPECT_EQ(t->type, BlockType::kF32);
  ASSERT_EQ(t->bytes.size(), values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(t->bytes.data(), values.data(), t->bytes.size()), 0);
}

TEST_F(WeightsTest, OneSafetensorsFile) {
  put_shard("model.safetensors", {tensor("a"), tensor("b", DType::kFloat16), tensor("c", DType::kBFloat16)});
  for (const std::string& p : {path("model.safetensors"), folder_, folder_ + "/"}) {
    const Weights w = Weights::open(p);
    EXPECT_EQ(w.name(), p);
    ASSERT_EQ(w.tensors().size(), 3u);
    expect_floats(w, "a", floats_);
    EXPECT_EQ(w.find("a")->shape, (std::vector<uint64_t>{2, 3}));
    EXPECT_EQ(w.find("a")->count(), 6u);
    EXPECT_EQ(w.find("b")->type, BlockType::kF16);
    EXPECT_EQ(w.find("c")->type, BlockType::kBF16);
    EXPECT_EQ(w.find("d"), nullptr);
    EXPECT_EQ(w.bytes(), 40u);
  }
  // By its content where the name says nothing.
  std::filesystem::rename(path("model.safetensors"), path("blob"));
  EXPECT_EQ(Weights::open(path("blob")).tensors().size(), 3u);
}

TEST_F(WeightsTest, Shards) {
  put_shards();
  put_index(two_shards());
  Weights w = Weights::open(folder_);
  ASSERT_EQ(w.tensors().size(), 3u);
  EXPECT_EQ(w.bytes(), 40u);
  const Weights moved = std::move(w);
  expect_floats(moved, "a", floats_);
  EXPECT_EQ(moved.find("c")->type, BlockType::kBF16);
  // A tensor that the map forgot is there all the same.
  put_index(str("{\"a\":\"", kOne, "\"}"));
  EXPECT_NE(Weights::open(folder_).find("b"), nullptr);
  // The whole file goes before the index.
  put_shard("model.safetensors", {tensor("whole")});
  EXPECT_NE(Weights::open(folder_).find("whole"), nullptr);
}

TEST_F(WeightsTest, TensorsThatNoKernelReadsAreKeptWhereAsked) {
  const std::vector<int64_t> ids = {1, 2};
  const TensorEntry integers = {"ids", DType::kInt64, {2}, ids.data(), 2};
  put_shard("one.safetensors", {tensor("a"), integers});
  EXPECT_KPD_ERROR(kUnsupported, "tensor 'ids' has elements of type int64, expected F32, F16 or BF16",
                   Weights::open(path("one.safetensors")));
  put_shard(kOne, {tensor("a"), integers});
  put_shard(kTwo, {tensor("c", DType::kBFloat16)});
  put_index(str("{\"a\":\"", kOne, "\",\"c\":\"", kTwo, "\",\"ids\":\"", kOne, "\"}"));
  for (const std::string& p : {path("one.safetensors"), folder_}) {
    Weights w = Weights::open(p, {}, OtherTensors::kKeep);
    w = Weights(std::move(w));
    ASSERT_EQ(w.others().size(), 1u) << p;
    EXPECT_EQ(w.others()[0].name, "ids");
    EXPECT_EQ(w.others()[0].type, "I64");
    EXPECT_EQ(w.others()[0].count(), 2u);
    EXPECT_EQ(std::memcmp(w.others()[0].bytes.data(), ids.data(), 16), 0);
    expect_floats(w, "a", floats_);
  }
  put_index(str("{\"ids\":\"", kTwo, "\",\"a\":\"", kOne, "\"}"));
  EXPECT_KPD_ERROR(kCorruptData, "tensor 'ids' is not in", Weights::open(folder_, {}, OtherTensors::kKeep));
}

// tests/golden/make_shards.py wrote the folder with transformers.
TEST_F(WeightsTest, ShardsOfTransformers) {
  const std::string folder = KPD_TESTS_DIR "/golden/shards";
  const Weights w = Weights::open(folder);
  std::ifstream sums(folder + "/sums.txt");
  std::string name, shape;
  uint64_t expected;
  size_t n = 0;
  for (; sums >> name >> shape >> expected; ++n) {
    const WeightEntry* t = w.find(name);
    ASSERT_NE(t, nullptr) << name;
    EXPECT_EQ(t->type, BlockType::kBF16);
    std::string dims;
    for (const uint64_t d : t->shape) dims += str(dims.empty() ? "" : "x", d);
    EXPECT_EQ(dims, shape) << name;
    uint64_t sum = 0;
    for (size_t i = 0; i < t->bytes.size(); i += 2) sum += load_u16(t->bytes.data() + i);
    EXPECT_EQ(sum, expected) << name;
  }
  EXPECT_EQ(n, 21u);
  EXPECT_EQ(w.tensors().size(), n);
}

TEST_F(WeightsTest, Gguf) {
  GgufBytes b(2, 0);
  b.tensor("w", {32, 2}, 3, 0).tensor("v", {4}, 0, 64);
  const std::vector<uint8_t> bytes = b.data(80);
  put("m.gguf", bytes);
  put("README.md", {});
  for (const std::string& p : {path("m.gguf"), folder_}) {
    const Weights w = Weights::open(p);
    ASSERT_EQ(w.tensors().size(), 2u);
    EXPECT_EQ(w.find("w")->type, BlockType::kQ4_1);
    EXPECT_EQ(w.find("w")->shape, (std::vector<uint64_t>{2, 32}));
    EXPECT_EQ(w.find("v")->bytes.size(), 16u);
  }
  std::filesystem::copy(path("m.gguf"), path("blob"));
  EXPECT_EQ(Weights::open(path("blob")).tensors().size(), 2u);
  put("n.gguf", bytes);
  EXPECT_KPD_ERROR(kUnsupported, "holds 2 GGUF files, expected one; name it, e.g. " + path("m.gguf"), Weights::open(folder_));
  GgufBytes part(0, 1);
  part.key("split.count", 2).number<uint16_t>(3);
  put("part", part.out);
  EXPECT_KPD_ERROR(kUnsupported, "one of 3 parts of a model, expected a whole GGUF file", Weights::open(path("part")));
}

TEST_F(WeightsTest, DroppedPagesAreReadAgain) {
  constexpr size_t kBytes = 5 << 16;
  GgufBytes b(1, 0);
  b.tensor("w", {kBytes / 4}, 0, 0);
  const std::vector<uint8_t> bytes = b.data(kBytes);
  const Weights w = Weights::open(put("m.gguf", bytes));
  const WeightEntry& t = w.tensors()[0];
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(std::memcmp(t.bytes.data(), bytes.data() + bytes.size() - kBytes, kBytes), 0);
    w.drop_pages(t);
  }
  // Memory that is not the file's is left alone.
  std::vector<uint8_t> own(1 << 20, 7);
  w.drop_pages({"own", BlockType::kF32, {own.size() / 4}, own});
  EXPECT_EQ(own[own.size() / 2], 7);
  w.drop_pages({"none", BlockType::kF32, {0}, {}});
}

TEST_F(WeightsTest, RefusesWhatIsNoModel) {
  EXPECT_KPD_ERROR(kIo, "no: cannot open", Weights::open(path("no")));
  EXPECT_KPD_ERROR(kUnsupported, "holds no weights of a model, expected a GGUF file, a .safetensors file, or a folder with",
                   Weights::open(folder_));
  EXPECT_KPD_ERROR(kUnsupported, "notes.txt: not the weights of a model, expected a GGUF file",
                   Weights::open(put("notes.txt", to_bytes("hello, this is text"))));
  EXPECT_KPD_ERROR(kUnsupported, "not the weights of a model", Weights::open(put("empty", {})));
  EXPECT_KPD_ERROR(kCorruptData, "bad.gguf: byte 0: expected the magic bytes of a GGUF file",
                   Weights::open(put("bad.gguf", {1, 2})));
  EXPECT_KPD_ERROR(kCorruptData, "bad.safetensors: byte 0", Weights::open(put("bad.safetensors", {1, 2})));
}

TEST_F(WeightsTest, RefusesIndexesThatLeadAstray) {
  put_shards();
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", ".", "", "a\\\\b.safetensors",
                           "a\\u0000.safetensors"}) {
    put_index(str("{\"a\":\"", name, "\"}"));
    EXPECT_KPD_ERROR(kCorruptData, "expected the name of a file in the same folder", Weights::open(folder_));
  }
  for (const char* name : {kIndex, "pytorch_model.bin", ".safetensors"}) {
    put_index(str("{\"a\":\"", name, "\"}"));
    EXPECT_KPD_ERROR(kCorruptData, "expected NAME.safetensors", Weights::open(folder_));
  }
  put_index("{\"a\":\"model-3.safetensors\"}");
  EXPECT_KPD_ERROR(kIo, "file 'model-3.safetensors' of tensor 'a' is missing", Weights::open(folder_));
  std::filesystem::create_symlink(path("nowhere"), path("model-3.safetensors"));
  EXPECT_KPD_ERROR(kIo, "file 'model-3.safetensors' of tensor 'a' is missing", Weights::open(folder_));
  std::filesystem::create_directory(path("dir.safetensors"));
  put_index("{\"a\":\"dir.safetensors\"}");
  EXPECT_KPD_ERROR(kIo, "is a directory", Weights::open(folder_));
  put_index(str("{\"a\":\"", kTwo, "\",\"b\":\"", kOne, "\"}"));
  EXPECT_KPD_ERROR(kCorruptData, str("index.json: tensor 'a' is not in '", kTwo, "'"), Weights::open(folder_));
  put_index(str("{\"z\":\"", kOne, "\"}"));
  EXPECT_KPD_ERROR(kCorruptData, str("tensor 'z' is not in '", kOne, "'"), Weights::open(folder_));
  put_shard(kTwo, {tensor("b"), tensor("c")});
  put_index(two_shards());
  EXPECT_KPD_ERROR(kCorruptData, str(kTwo, ": tensor 'b' is also in '", path(kOne), "', expected it once"),
                   Weights::open(folder_));
  put(kTwo, {1, 2, 3});
  EXPECT_KPD_ERROR(kCorruptData, str(kTwo, ": byte 0"), Weights::open(folder_));
}

TEST_F(WeightsTest, RefusesBrokenIndexes) {
  put_shards();
  const auto open = [&](const std::string& text, const Limits& limits = {}) {
    put(kIndex, to_bytes(text));
    return Weights::open(folder_, limits).tensors().size();
  };
  const std::string good =
      "{\"x\":[[{\"weight_map\":7}],null,1.5],\"weight_map\":" + two_shards() + ",\"y\":{\"weight_map\":{}}}";
  EXPECT_EQ(open(good), 3u);
  EXPECT_EQ(open("{\"weight_map\":{}}"), 0u);
  EXPECT_KPD_ERROR(kCorruptData, "the index has no weight_map", open("{}"));
  EXPECT_KPD_ERROR(kCorruptData, "the index has no weight_map", open("{\"metadata\":{\"weight_map\":{}}}"));
  EXPECT_KPD_ERROR(kCorruptData, "weight_map is given twice", open("{\"weight_map\":{},\"weight_map\":{}}"));
  EXPECT_KPD_ERROR(kCorruptData, "tensor 'a' is given twice",
                   open(str("{\"weight_map\":{\"a\":\"", kOne, "\",\"a\":\"", kOne, "\"}}")));
  EXPECT_KPD_ERROR(kCorruptData, "an object in weight_map", open("{\"weight_map\":{\"a\":{}}}"));
  EXPECT_KPD_ERROR(kCorruptData, "an array in the index, expected the name of a file", open("{\"weight_map\":{\"a\":[]}}"));
  EXPECT_KPD_ERROR(kCorruptData, "a number in the index, expected the name of a file", open("{\"weight_map\":{\"a\":1}}"));
  for (const char* v : {"null", "[]", "\"a\"", "true", "1", "-1", "1.5"}) {
    EXPECT_KPD_ERROR(kCorruptData, "expected an object of file names", open(str("{\"weight_map\":", v, "}")));
    EXPECT_KPD_ERROR(kCorruptData, "expected an object with weight_map", open(v));
  }
  EXPECT_KPD_ERROR(kCorruptData, "index.json: byte 0: the index is not valid JSON", open(""));
  for (size_t n = 1; n < good.size(); ++n) EXPECT_KPD_ERROR(kCorruptData, "not valid JSON", open(good.substr(0, n)));
  EXPECT_KPD_ERROR(kLimitExceeded, "nested deeper than", open("{\"x\":" + std::string(1000000, '[')));
  Limits limits;
  limits.max_tensors = 2;
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 2 tensors", open(good, limits));
  limits = {};
  limits.max_header_bytes = 20;
  EXPECT_KPD_ERROR(kLimitExceeded, "bytes, the limit is 20", open(good, limits));
  limits = {};
  limits.max_total_elements = 13;
  EXPECT_KPD_ERROR(kLimitExceeded, "3 tensors of 14 elements", open(good, limits));
}

}  // namespace
}  // namespace kpd::io
