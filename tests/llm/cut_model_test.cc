// A model's file is cut while the model is in use: exact arithmetic, which reads weights where they lie, throws and goes on
// once the file is whole again; fast arithmetic reads nothing of it any more.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/llm/model.h"

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;

std::vector<float> logits(Model& model) {
  const auto cache = model.make_cache("f32", 64);
  std::vector<BatchPart> batch(1);
  batch[0].tokens = {97, 98, 200, 3};
  const auto got = model.forward(batch, *cache);
  return {got.begin(), got.end()};
}

TEST(CutModel, ExactThrowsAndFastGoesOn) {
  const fs::path folder = fs::temp_directory_path() / ("kpd-cut-model-" + std::to_string(getpid()));
  for (const char* name : {"model.safetensors", "model.gguf"}) {
    for (const Arithmetic arithmetic : {Arithmetic::kExact, Arithmetic::kFast}) {
      fs::create_directories(folder);
      const fs::path source = fs::path(KPD_TESTS_DIR) / "golden/models/chat";
      fs::copy_file(source / "config.json", folder / "config.json", fs::copy_options::overwrite_existing);
      fs::copy_file(source / name, folder / name, fs::copy_options::overwrite_existing);
      const std::string path = std::string(name) == "model.gguf" ? (folder / name).string() : folder.string();
      Model model = Model::load(path, {.arithmetic = arithmetic, .n_threads = 2, .limits = {}});
      const std::vector<float> before = logits(model);
      const auto whole = io::map_file((source / name).string());
      for (const size_t share : {3, 2}) {
        fs::resize_file(folder / name, whole.bytes().size() * (share - 1) / share);
        if (arithmetic == Arithmetic::kFast) {
          EXPECT_EQ(logits(model), before) << name;
        } else {
          SCOPED_TRACE(name);
          EXPECT_KPD_ERROR(kIo, "became shorter while it was in use", logits(model));
        }
      }
      std::ofstream(folder / name, std::ios::in | std::ios::out | std::ios::binary)
          .write(reinterpret_cast<const char*>(whole.bytes().data()), static_cast<std::streamsize>(whole.bytes().size()));
      EXPECT_EQ(logits(model), before) << name;
      fs::remove_all(folder);
    }
  }
}

}  // namespace
}  // namespace kpd::llm
