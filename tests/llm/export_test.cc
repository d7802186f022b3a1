// A checkpoint written anew is the same model: logits bit for bit in F32, for every family, from and to both kinds of files;
// and what the other kind has no name for is refused before anything is written.
#include "kpd/llm/export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/io/gguf.h"
#include "kpd/io/tensors.h"
#include "kpd/llm/model.h"
#include "kpd/text/tokenizer.h"
#include "io/json.h"

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;

const std::string kModels = std::string(KPD_TESTS_DIR) + "/golden/models/";
constexpr auto kFolder = CheckpointFormat::kSafetensors;
constexpr auto kGguf = CheckpointFormat::kGguf;

std::vector<text::TokenId> tokens_of(const std::string& name) {
  const io::TensorFile file = io::load_tensors(kModels + name + "/logits.safetensors");
  for (const io::TensorEntry& e : file.tensors) {
    if (e.name != "tokens") continue;
    std::vector<float> values(e.count);
    load_floats(e.view(), 0, values);
    return {values.begin(), values.end()};
  }
  return {};
}

std::vector<float> logits_of(const std::string& path, const std::vector<text::TokenId>& tokens) {
  Model model = Model::load(path, {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  const auto cache = model.make_cache("f32", 256);
  const BatchPart batch[] = {{0, tokens, {}, BatchPart::Want::kAll, {}}};
  const auto logits = model.forward(batch, *cache);
  return {logits.begin(), logits.end()};
}

void export_to(const std::string& from, const std::string& to, CheckpointFormat format, BlockType type = BlockType::kF32) {
  const Checkpoint checkpoint = Checkpoint::open(from);
  CheckpointExport(checkpoint, {.format = format, .type = type}).write(to, io::Existing::kKeep);
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A golden model with some keys of its configuration changed.
struct Case {
  std::string name, golden;
  std::map<std::string, io::Json> changed{};
};

std::vector<Case> cases() {
  const io::Json full = io::Json::array({"full_attention", "full_attention", "full_attention"});
  std::vector<Case> all;
  for (const char* name : {"llama", "llama3_rope", "llama_linear", "smollm3", "qwen2", "qwen3", "phi3", "gemma",
                           "gemma3_softcap", "ministral3", "granite", "granite4", "granite4_unrotated", "olmo2", "olmo3"})
    all.push_back({name, name});
  all.push_back({"mistral_whole", "mistral", {{"sliding_window", nullptr}}});
  all.push_back({"ministral_whole", "ministral", {{"layer_types", full}}});
  all.push_back({"qwen2_yarn", "qwen2_window", {{"layer_types", full}, {"use_sliding_window", false}}});
  all.push_back({"gemma2_scale", "gemma2", {{"query_pre_attn_scalar", 16}}});
  all.push_back({"gemma3_scale", "gemma3", {{"query_pre_attn_scalar", 16}}});
  return all;
}

class Export : public testing::TempFolder {
 protected:
  std::string source(const Case& c) const {
    if (c.changed.empty()) return kModels + c.golden;
    const std::string to = path(c.name);
    fs::create_directory(to);
    fs::copy_file(kModels + c.golden + "/model.safetensors", to + "/model.safetensors");
    io::Json config = io::Json::parse(text_of(kModels + c.golden + "/config.json"));
    for (const auto& [key, value] : c.changed) config[key] = value;
    std::ofstream(to + "/config.json") << config.dump();
    return to;
  }
};

TEST_F(Export, EveryFamilyIsTheSameModelBothWaysAndTwiceRound) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::string from = source(c);
    const std::vector<text::TokenId> tokens = tokens_of(c.golden);
    const std::vector<float> logits = logits_of(from, tokens);
    const auto name = [&](const char* what) { return path(c.name + what); };
    export_to(from, name(".gguf"), kGguf);
    export_to(name(".gguf"), name("-folder"), kFolder);
    export_to(name("-folder"), name("2.gguf"), kGguf);
    export_to(name("2.gguf"), name("-folder2"), kFolder);
    export_to(from, name("-copy"), kFolder);
    for (const char* what : {".gguf", "-folder", "2.gguf", "-folder2", "-copy"})
      EXPECT_EQ(logits_of(name(what), tokens), logits) << what;
    EXPECT_EQ(text_of(name("-folder") + "/model.safetensors"), text_of(name("-folder2") + "/model.safetensors"));
    EXPECT_EQ(text_of(name("-folder") + "/config.json"), text_of(name("-folder2") + "/config.json"));
  }
}

TEST_F(Export, WhatOtherProgramsWroteAsGguf) {
  for (const char* name : {"llama", "qwen2", "phi3", "llama3_rope", "smollm3", "qwen3", "gemma", "gemma3_softcap", "ministral3",
                           "granite", "granite4", "granite4_unrotated", "olmo2", "olmo3"}) {
    SCOPED_TRACE(name);
    const std::vector<text::TokenId> tokens = tokens_of(name);
    const std::string from = kModels + name + "/model.gguf";
    const std::vector<float> logits = logits_of(from, tokens);
    export_to(from, path(name), kFolder);
    export_to(from, path(std::string(name) + ".gguf"), kGguf);
    EXPECT_EQ(logits_of(path(name), tokens), logits);
    EXPECT_EQ(logits_of(path(std::string(name) + ".gguf"), tokens), logits);
  }
}

// Golden weights are bfloat16, so that nothing is lost in it; what GGUF keeps in floats of 32 bits is.
TEST_F(Export, NarrowTypes) {
  for (const char* name : {"llama", "gemma2", "phi3"}) {
    const std::vector<text::TokenId> tokens = tokens_of(name);
    const std::vector<float> logits = logits_of(kModels + name, tokens);
    export_to(kModels + name, path(name), kFolder, BlockType::kBF16);
    EXPECT_EQ(logits_of(path(name), tokens), logits) << name;
    EXPECT_LT(fs::file_size(path(name) + "/model.safetensors"), fs::file_size(kModels + name + "/model.safetensors") + 512);
  }
  export_to(kModels + "llama", path("half.gguf"), kGguf, BlockType::kF16);
  const io::Weights weights = io::Weights::open(path("half.gguf"));
  for (const io::WeightEntry& e : weights.tensors())
    EXPECT_EQ(e.type, e.shape.size() > 1 ? BlockType::kF16 : BlockType::kF32) << e.name;
}

TEST_F(Export, WhatGgufHasNoNameForIsRefusedBeforeAnythingIsWritten) {
  const std::map<std::string, std::string> refused = {
      {"llama_dynamic", "a rotation that grows with the context (dynamic), for which GGUF's llama has no key"},
      {"mistral", "GGUF's llama has no key that says the window of layer 0"},
      {"ministral", "GGUF's llama has no key that says the window of layer 1"},
      {"qwen2_window", "no key that says which layers have it"},
      {"smollm3_window", "GGUF's smollm3 has no key that says"},
      {"gemma2", "GGUF's gemma2 has no key that says the scale of attention"},
      {"gemma3", "GGUF's gemma3 has no key that says the scale of attention"}};
  for (const auto& [name, why] : refused) {
    SCOPED_TRACE(name);
    EXPECT_KPD_ERROR(kUnsupported, name == "qwen2_window" ? "GGUF's qwen2 has no key that says the window" : why,
                     export_to(kModels + name, path("out.gguf"), kGguf));
    // A folder has all of it.
    const std::vector<text::TokenId> tokens = tokens_of(name);
    export_to(kModels + name, path(name), kFolder);
    EXPECT_EQ(logits_of(path(name), tokens), logits_of(kModels + name, tokens));
  }
  EXPECT_FALSE(fs::exists(path("out.gguf")));
  for (const std::string& name : names()) EXPECT_TRUE(refused.contains(name)) << name;
}

TEST_F(Export, ChatModelsKeepTokenizerTemplateAndSettings) {
  const std::string from = kModels + "chat", text = "Hello <|im_end|> 12345, \xc3\xa9t\xc3\xa9!\n  permissions";
  export_to(from, path("m.gguf"), kGguf);
  export_to(path("m.gguf"), path("folder"), kFolder);
  export_to(path("folder"), path("again.gguf"), kGguf);
  const text::Tokenizer original = text::Tokenizer::from_directory(from);
  const io::GgufMetadata first = io::load_gguf_metadata(path("m.gguf")), second = io::load_gguf_metadata(path("again.gguf"));
  const text::Tokenizer of_gguf = text::Tokenizer::from_gguf(first),
                        of_folder = text::Tokenizer::from_directory(path("folder"));
  for (const text::Tokenizer* t : {&of_gguf, &of_folder}) {
    EXPECT_EQ(t->encode(text), original.encode(text));
    EXPECT_EQ(t->chat_template(), original.chat_template());
    EXPECT_EQ(t->bos(), original.bos());
    EXPECT_EQ(t->eos(), original.eos());
    EXPECT_TRUE(std::equal(t->end_of_turn().begin(), t->end_of_turn().end(), original.end_of_turn().begin(),
                           original.end_of_turn().end()));
  }
  for (const auto& [key, value] : first.values) {
    const io::GgufValue* again = second.find(key);
    ASSERT_NE(again, nullptr) << key;
    if (key == "general.name") continue;
    EXPECT_TRUE(*again == value) << key;
  }
  const io::Json config = io::Json::parse(text_of(path("folder/config.json")));
  EXPECT_EQ(config["bos_token_id"], 258);
  EXPECT_EQ(config["dtype"], "float32");
}

TEST_F(Export, ShardsAndAnIndex) {
  const Checkpoint checkpoint = Checkpoint::open(kModels + "llama");
  CheckpointExport(checkpoint, {.format = kFolder, .type = BlockType::kF16, .shard_bytes = 10000})
      .write(path("out"), io::Existing::kKeep);
  const io::Json index = io::Json::parse(text_of(path("out/model.safetensors.index.json")));
  EXPECT_GT(index["weight_map"].size(), 20u);
  size_t shards = 0;
  for (const auto& item : fs::directory_iterator(path("out"))) {
    if (item.path().extension() != ".safetensors") continue;
    ++shards;
    EXPECT_LT(item.file_size(), 12000u) << item.path();
  }
  EXPECT_GE(shards, 4u);
  const std::vector<text::TokenId> tokens = tokens_of("llama");
  export_to(kModels + "llama", path("whole"), kFolder, BlockType::kF16);
  EXPECT_EQ(logits_of(path("out"), tokens), logits_of(path("whole"), tokens));
}

TEST_F(Export, NothingIsLeftBehindAndNothingReplacedUnasked) {
  const Checkpoint checkpoint = Checkpoint::open(kModels + "llama");
  const CheckpointExport folder(checkpoint, {.format = kFolder}), file(checkpoint, {.format = kGguf});
  uint64_t seen = 0;
  const auto stop = [&](uint64_t bytes) {
    if ((seen += bytes) > 20000) fail(ErrorCode::kCancelled, "stopped");
  };
  EXPECT_KPD_ERROR(kCancelled, "stopped", folder.write(path("out"), io::Existing::kKeep, stop));
  seen = 0;
  EXPECT_KPD_ERROR(kCancelled, "stopped", file.write(path("out.gguf"), io::Existing::kKeep, stop));
  EXPECT_TRUE(names().empty());
  folder.write(path("out"), io::Existing::kKeep);
  EXPECT_KPD_ERROR(kInvalidArgument, "is there already", folder.write(path("out"), io::Existing::kKeep));
  folder.write(path("out"), io::Existing::kReplace);
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
  put("out/notes.txt", {1});
  EXPECT_KPD_ERROR(kInvalidArgument, "holds 'notes.txt'", folder.write(path("out"), io::Existing::kReplace));
  EXPECT_TRUE(fs::exists(path("out/notes.txt")));
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(Export, ValuesBeyondATypesRangeAreRefused) {
  const Case c{"large", "llama", {{"rms_norm_eps", 1e-5}}};
  const std::string from = source(c);
  // The last element of the data: a bfloat16 of about 1e38.
  std::fstream out(from + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(-2, std::ios::end);
  out.write("\x96\x7e", 2);
  out.close();
  EXPECT_KPD_ERROR(kUnsupported, "which F16 does not", export_to(from, path("out"), kFolder, BlockType::kF16));
  EXPECT_FALSE(fs::exists(path("out")));
  export_to(from, path("out"), kFolder, BlockType::kBF16);
}

// Tables of masks and positions, which older programs wrote beside the weights.
TEST_F(Export, OtherElementTypesAreKeptAsTheyAre) {
  fs::create_directory(path("from"));
  fs::copy_file(kModels + "llama/config.json", path("from/config.json"));
  io::TensorFile file = io::load_tensors(kModels + "llama/model.safetensors");
  const std::vector<int64_t> positions = {0, 1, 2, -3};
  const std::vector<uint8_t> mask = {1, 0, 1};
  file.tensors.push_back({"model.position_ids", DType::kInt64, {1, 4}, positions.data(), 4});
  file.tensors.push_back({"model.layers.0.self_attn.masked_bias", DType::kBool, {3}, mask.data(), 3});
  io::save_tensors(path("from/model.safetensors"), file.tensors);
  export_to(path("from"), path("to"), kFolder);
  const io::TensorFile back = io::load_tensors(path("to/model.safetensors"));
  size_t found = 0;
  for (const io::TensorEntry& e : back.tensors) {
    const auto* bytes = static_cast<const uint8_t*>(e.data);
    if (e.name == "model.position_ids") {
      EXPECT_EQ(e.dtype, DType::kInt64);
      EXPECT_EQ(e.shape, (std::vector<uint64_t>{1, 4}));
      EXPECT_EQ(std::memcmp(bytes, positions.data(), 32), 0);
      ++found;
    } else if (e.name == "model.layers.0.self_attn.masked_bias") {
      EXPECT_EQ(e.dtype, DType::kBool);
      EXPECT_EQ(std::memcmp(bytes, mask.data(), 3), 0);
      ++found;
    } else {
      EXPECT_EQ(e.dtype, DType::kFloat32) << e.name;
    }
  }
  EXPECT_EQ(found, 2u);
}

}  // namespace
}  // namespace kpd::llm
