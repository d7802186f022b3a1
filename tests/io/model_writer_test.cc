// Models written a tensor at a time: the bytes are those of the writers that have everything at once.
#include "kpd/io/model_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/io/output_folder.h"
#include "kpd/io/safetensors.h"
#include "kpd/io/weights.h"

namespace kpd::io {
namespace {

namespace fs = std::filesystem;

class ModelWriter : public testing::TempFolder {
 protected:
  ModelWriter() : values_(1000) { std::iota(values_.begin(), values_.end(), uint8_t{0}); }
  std::span<const uint8_t> bytes(size_t n) const { return std::span(values_).first(n); }
  std::vector<uint8_t> values_;
};

TEST_F(ModelWriter, AGgufFileInPiecesIsTheOneWrittenAtOnce) {
  GgufMetadata metadata;
  metadata.values = {{"general.architecture", std::string("llama")}, {"llama.block_count", uint64_t{2}}};
  const std::vector<WeightEntry> all = {{"a", BlockType::kF32, {3, 5}, bytes(60)},
                                        {"empty", BlockType::kF32, {0, 5}, bytes(0)},
                                        {"b", BlockType::kQ8_0, {2, 32}, bytes(68)},
                                        {"c", BlockType::kF16, {7}, bytes(14)}};
  save_gguf(path("whole.gguf"), metadata, all);
  std::vector<GgufTensor> planned;
  std::vector<uint8_t> joined;
  for (const WeightEntry& e : all) {
    planned.push_back({e.name, e.type, e.shape});
    joined.insert(joined.end(), e.bytes.begin(), e.bytes.end());
  }
  for (const size_t piece : {1, 7, 1000}) {
    GgufWriter writer(path("pieces.gguf"), metadata, planned);
    for (size_t at = 0; at < joined.size(); at += piece)
      writer.write(std::span(joined).subspan(at, std::min(piece, joined.size() - at)));
    EXPECT_KPD_ERROR(kInvalidArgument, "more bytes than its tensors have", writer.write(bytes(1)));
    writer.commit();
    EXPECT_EQ(get("pieces.gguf"), get("whole.gguf")) << piece;
  }
  {
    GgufWriter writer(path("short.gguf"), metadata, planned);
    writer.write(bytes(61));
    EXPECT_KPD_ERROR(kInvalidArgument, "'b' is not complete", writer.commit());
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"pieces.gguf", "whole.gguf"}));
}

TEST_F(ModelWriter, SafetensorsOfEveryTypeInOneFileOrInShards) {
  std::vector<TensorEntry> all = {{"half", DType::kFloat16, {3}, nullptr, 3},
                                  {"count", DType::kInt64, {2, 2}, nullptr, 4},
                                  {"mask", DType::kBool, {5}, nullptr, 5},
                                  {"float", DType::kFloat32, {4}, nullptr, 4}};
  const auto size = [&](size_t i) { return all[i].count * dtype_bytes(all[i].dtype); };
  for (const uint64_t shard_bytes : {uint64_t{1000}, uint64_t{38}, uint64_t{1}}) {
    fs::remove_all(path("out"));
    fs::create_directory(path("out"));
    SafetensorsWriter writer(path("out"), all, {{"format", "pt"}}, shard_bytes);
    for (const size_t i : writer.order()) {
      writer.write(bytes(size(i)).first(1));
      writer.write(bytes(size(i)).subspan(1));
    }
    writer.commit();
    EXPECT_EQ(writer.files().size(), shard_bytes == 1000 ? 1u : shard_bytes == 38 ? 3u : 5u);
    const Weights back = Weights::open(path("out"), {}, OtherTensors::kKeep);
    ASSERT_EQ(back.tensors().size() + back.others().size(), 4u);
    for (const WeightEntry& e : back.tensors())
      EXPECT_TRUE(std::equal(e.bytes.begin(), e.bytes.end(), values_.begin())) << e.name;
    for (const SafetensorsRecord& r : back.others()) {
      EXPECT_EQ(r.type, r.name == "count" ? "I64" : "BOOL");
      EXPECT_TRUE(std::equal(r.bytes.begin(), r.bytes.end(), values_.begin())) << r.name;
    }
  }
  all[0].count = 4;
  EXPECT_KPD_ERROR(kInvalidArgument, "expected the product of its shape", SafetensorsWriter(path("out"), all, {}, 100));
}

TEST_F(ModelWriter, AFolderAppearsWholeOrNotAtAll) {
  const auto replaceable = [](std::string_view name) { return name == "a"; };
  {
    const OutputFolder folder(path("out"), Existing::kKeep, replaceable);
    write_file(folder.path() + "/a", bytes(3));
    EXPECT_FALSE(fs::exists(path("out")));
  }
  EXPECT_TRUE(names().empty());
  fs::create_directory(path("out"));  // an empty one is as none
  const auto write = [&](Existing existing, size_t n) {
    OutputFolder folder(path("out/"), existing, replaceable);
    write_file(folder.path() + "/a", bytes(n));
    folder.commit();
  };
  write(Existing::kKeep, 3);
  EXPECT_EQ(get("out/a").size(), 3u);
  EXPECT_KPD_ERROR(kInvalidArgument, "is there already and not empty", write(Existing::kKeep, 4));
  write(Existing::kReplace, 5);
  EXPECT_EQ(get("out/a").size(), 5u);
  put("out/b", {1});
  EXPECT_KPD_ERROR(kInvalidArgument, "holds 'b'", write(Existing::kReplace, 6));
  EXPECT_EQ(get("out/a").size(), 5u);
  put("file", {1});
  EXPECT_KPD_ERROR(kInvalidArgument, "is a file, expected a folder",
                   OutputFolder(path("file"), Existing::kReplace, replaceable));
  EXPECT_EQ(names(), (std::vector<std::string>{"file", "out"}));
}

}  // namespace
}  // namespace kpd::io
