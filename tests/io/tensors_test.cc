// tests: the formats of tensors behind one interface: the choice by name and content, errors, what each cannot hold.
#include "kpd/io/tensors.h"

#include <cstring>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/io/npy.h"

namespace kpd::io {
namespace {

using testing::to_bytes;

class Tensors : public testing::TempFolder {
 protected:
  const std::vector<float> values_ = {1, -2, 0.5f, 1e-40f, 3e38f, 0};
  TensorEntry entry(const std::string& name = "w") const { return {name, DType::kFloat32, {2, 3}, values_.data(), 6}; }
};

TEST_F(Tensors, EveryFormatReadsBackWhatWasSaved) {
  for (const char* name : {"a.npy", "a.safetensors", "a.f32", "A.NPY", "b.SafeTensors"}) {
    const std::vector<TensorEntry> saved = {entry()};
    save_tensors(path(name), saved);
    const TensorFile file = load_tensors(path(name));
    ASSERT_EQ(file.tensors.size(), 1u) << name;
    const TensorEntry& t = file.tensors[0];
    EXPECT_EQ(t.name, file.format == TensorFormat::kSafetensors ? "w" : "");
    EXPECT_EQ(t.shape, file.format == TensorFormat::kRawF32 ? (std::vector<uint64_t>{6}) : (std::vector<uint64_t>{2, 3}));
    EXPECT_EQ(t.count, 6u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data) % 4, 0u);
    EXPECT_EQ(std::memcmp(t.data, values_.data(), 24), 0) << name;
  }
}

TEST_F(Tensors, ManyTensorsAndMetadataInSafetensors) {
  const std::vector<uint16_t> h = {1, 2, 3};
  const std::vector<TensorEntry> saved = {{"h", DType::kBFloat16, {3}, h.data(), 3}, entry("w")};
  save_tensors(path("m.safetensors"), saved, {{"round", "3"}});
  TensorFile file = load_tensors(path("m.safetensors"));
  const TensorFile moved = std::move(file);
  ASSERT_EQ(moved.tensors.size(), 2u);
  EXPECT_EQ(moved.tensors[0].name, "h");
  EXPECT_EQ(std::memcmp(moved.tensors[0].data, h.data(), 6), 0);
  EXPECT_EQ(std::memcmp(moved.tensors[1].data, values_.data(), 24), 0);
  EXPECT_EQ(moved.metadata, (Metadata{{"round", "3"}}));
}

TEST_F(Tensors, AWriterPutsEachTensorInPlace) {
  const std::vector<TensorEntry> tensors = {{"b", DType::kInt8, {3}, nullptr, 3}, {"a", DType::kFloat64, {2}, nullptr, 2}};
  TensorWriter writer(path("w.safetensors"), TensorFormat::kSafetensors, tensors, {{"k", "v"}}, folder_);
  const double values[] = {1.5, -2};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(writer.bytes(1).data()) % 8, 0u);
  std::memcpy(writer.bytes(1).data(), values, 16);
  std::memcpy(writer.bytes(0).data(), "xyz", 3);
  EXPECT_FALSE(std::filesystem::exists(path("w.safetensors")));
  writer.commit();
  const TensorFile back = load_tensors(path("w.safetensors"));
  ASSERT_EQ(back.tensors.size(), 2u);
  EXPECT_EQ(std::memcmp(back.tensors[0].data, "xyz", 3), 0);
  EXPECT_EQ(std::memcmp(back.tensors[1].data, values, 16), 0);
  EXPECT_EQ(back.metadata, (Metadata{{"k", "v"}}));
}

TEST_F(Tensors, UnknownExtensionsGoByContent) {
  const std::vector<TensorEntry> saved = {entry()};
  save_tensors(path("a.npy"), saved);
  save_tensors(path("a.safetensors"), saved);
  EXPECT_EQ(load_tensors(put("x.bin", get("a.npy"))).format, TensorFormat::kNpy);
  EXPECT_EQ(load_tensors(put("y", get("a.safetensors"))).format, TensorFormat::kSafetensors);
  EXPECT_KPD_ERROR(kUnsupported, "neither name nor content is one of .npy, .safetensors or .f32",
                   load_tensors(put("z", to_bytes("hello"))));
  EXPECT_KPD_ERROR(kUnsupported, "neither", load_tensors(put("empty", {})));
}

TEST_F(Tensors, NameAndContentThatDisagreeAreAnError) {
  save_tensors(path("a.npy"), std::vector<TensorEntry>{entry()});
  EXPECT_KPD_ERROR(kCorruptData, "the content is .npy, expected .f32", load_tensors(put("a.f32", get("a.npy"))));
  EXPECT_KPD_ERROR(kCorruptData, "the content is .npy", load_tensors(put("a.safetensors", get("a.npy"))));
  EXPECT_KPD_ERROR(kCorruptData, "expected the magic bytes of .npy", load_tensors(put("b.npy", to_bytes("hello"))));
}

TEST_F(Tensors, EmptyFilesAndFolders) {
  EXPECT_KPD_ERROR(kCorruptData, "magic", load_tensors(put("e.npy", {})));
  EXPECT_KPD_ERROR(kCorruptData, "header length", load_tensors(put("e.safetensors", {})));
  EXPECT_EQ(load_tensors(put("e.f32", {})).tensors[0].count, 0u);
  std::filesystem::create_directory(path("d.npy"));
  EXPECT_KPD_ERROR(kIo, "is a directory", load_tensors(path("d.npy")));
  EXPECT_KPD_ERROR(kIo, "cannot open", load_tensors(path("absent.npy")));
}

TEST_F(Tensors, RawFloatsComeInFours) {
  for (const size_t n : {1, 2, 3, 5, 4097}) {
    EXPECT_KPD_ERROR(kCorruptData, str("byte ", n, ": the file ends, expected a multiple of 4 bytes"),
                     load_tensors(put("a.f32", std::vector<uint8_t>(n))));
  }
  Limits limits;
  limits.max_elements = 3;
  EXPECT_KPD_ERROR(kLimitExceeded, "limit of 3", load_tensors(put("b.f32", std::vector<uint8_t>(16)), limits));
}

TEST_F(Tensors, SavingRefusesWhatTheFormatCannotHold) {
  const std::vector<uint16_t> h = {1, 2};
  const TensorEntry half = {"h", DType::kFloat16, {2}, h.data(), 2}, brain = {"b", DType::kBFloat16, {2}, h.data(), 2};
  using List = std::vector<TensorEntry>;
  EXPECT_KPD_ERROR(kInvalidArgument, "2 tensors, expected one for .npy",
                   save_tensors(path("a.npy"), List{entry("a"), entry("b")}));
  EXPECT_KPD_ERROR(kInvalidArgument, "0 tensors, expected one for .f32", save_tensors(path("a.f32"), List{}));
  EXPECT_KPD_ERROR(kInvalidArgument, "no bfloat16", save_tensors(path("a.npy"), List{brain}));
  EXPECT_KPD_ERROR(kInvalidArgument, "expected float32 for .f32", save_tensors(path("a.f32"), List{half}));
  EXPECT_KPD_ERROR(kInvalidArgument, "extension '.txt', expected .npy, .safetensors or .f32",
                   save_tensors(path("a.txt"), List{entry()}));
  EXPECT_KPD_ERROR(kInvalidArgument, "extension ''", save_tensors(path("a"), List{entry()}));
  TensorEntry wrong = entry();
  wrong.count = 5;
  EXPECT_KPD_ERROR(kInvalidArgument, "has 5 elements, expected the product", save_tensors(path("a.safetensors"), List{wrong}));
  EXPECT_KPD_ERROR(kInvalidArgument, "has 5 elements, expected the product",
                   save_safetensors(path("a.safetensors"), List{wrong}));
  EXPECT_KPD_ERROR(kInvalidArgument, "has 5 elements, expected the product", save_npy(path("a.npy"), wrong));
  TensorEntry none = entry();
  none.data = nullptr;
  EXPECT_KPD_ERROR(kInvalidArgument, "has no data", save_npy(path("a.npy"), none));
  EXPECT_TRUE(names().empty()) << "nothing is written";
  save_tensors(path("a.npy"), List{half});
  EXPECT_EQ(load_tensors(path("a.npy")).tensors[0].dtype, DType::kFloat16);
}

}  // namespace
}  // namespace kpd::io
