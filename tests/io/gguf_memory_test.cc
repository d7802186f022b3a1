// tests: what a model file makes kpd allocate is bounded by the bytes that are there, whatever they claim.
#include "base/counted_new.h"
#include "base/expect_error.h"
#include "io/gguf_damages.h"
#include "io/temp_folder.h"
#include "kpd/io/gguf.h"
#include "kpd/io/weights.h"

namespace kpd::io {
namespace {

using testing::GgufBytes;
using testing::GgufDamage;
using testing::peak_of;
using Bytes = std::vector<uint8_t>;

constexpr int64_t kFixed = 64 << 10;

int64_t peak(const Bytes& bytes) {
  return peak_of([&] { (void)parse_gguf(bytes, "hostile.gguf"); });
}

TEST(GgufMemory, DamagedFilesTakeLittle) {
  for (const auto& damages : {testing::gguf_header_damages(), testing::gguf_value_damages(), testing::gguf_tensor_damages()}) {
    for (const GgufDamage& d : damages) EXPECT_LT(peak(d.bytes), kFixed) << d.name;
  }
}

// As much structure as a byte can claim: each is accepted, and takes a small multiple of the file.
TEST(GgufMemory, ListsGrowWithTheFileOnly) {
  constexpr uint64_t kItems = 50000;
  GgufBytes bytes(0, 1);
  bytes.array("k", 0, kItems);
  for (uint64_t i = 0; i < kItems; ++i) bytes.number(uint8_t{7});
  EXPECT_NO_THROW(parse_gguf(bytes.out, "m"));
  EXPECT_LT(peak(bytes.out), static_cast<int64_t>(9 * bytes.out.size()) + kFixed);

  GgufBytes texts(0, 1);
  texts.array("k", 8, kItems);
  for (uint64_t i = 0; i < kItems; ++i) texts.text("");
  EXPECT_NO_THROW(parse_gguf(texts.out, "m"));
  EXPECT_LT(peak(texts.out), static_cast<int64_t>(5 * texts.out.size()) + kFixed);

  GgufBytes keys(0, kItems);
  for (uint64_t i = 0; i < kItems; ++i) keys.key(std::string(reinterpret_cast<const char*>(&i), 3), 0).number(uint8_t{7});
  EXPECT_NO_THROW(parse_gguf(keys.out, "m"));
  EXPECT_LT(peak(keys.out), static_cast<int64_t>(24 * keys.out.size()) + kFixed);

  GgufBytes tensors(kItems, 0);
  for (uint64_t i = 0; i < kItems; ++i) tensors.tensor(std::string(reinterpret_cast<const char*>(&i), 3), {0}, 0, 0);
  EXPECT_NO_THROW(parse_gguf(tensors.out, "m"));
  EXPECT_LT(peak(tensors.out), static_cast<int64_t>(16 * tensors.out.size()) + kFixed);
}

class WeightsMemory : public testing::TempFolder {};

TEST_F(WeightsMemory, TensorsAreMappedNotRead) {
  constexpr size_t kBytes = 8 << 20;
  GgufBytes b(1, 0);
  b.tensor("w", {kBytes / 4}, 0, 0);
  const std::string file = put("m.gguf", b.data(kBytes));
  EXPECT_LT(peak_of([&] { EXPECT_EQ(Weights::open(file).bytes(), kBytes); }), kFixed);
}

TEST_F(WeightsMemory, IndexesGrowWithTheFileOnly) {
  std::string text = "{\"weight_map\":{\"a\":\"x.safetensors\"";
  for (int i = 0; i < 50000; ++i) text += str(",\"", i, "\":\"x.safetensors\"");
  put("model.safetensors.index.json", testing::to_bytes(text + "}}"));
  EXPECT_LT(peak_of([&] { (void)Weights::open(folder_); }), static_cast<int64_t>(16 * text.size()) + kFixed);
  put("model.safetensors.index.json", testing::to_bytes("{\"weight_map\":" + std::string(1 << 22, '[')));
  EXPECT_LT(peak_of([&] { (void)Weights::open(folder_); }), kFixed);
}

}  // namespace
}  // namespace kpd::io
