// Loading tells how far it is, and what the listener throws ends it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/io/weights.h"
#include "kpd/llm/model.h"

namespace kpd::llm {
namespace {

const std::string kFile = std::string(KPD_TESTS_DIR) + "/golden/models/chat/model.gguf";

// Bytes of the matrices that products read: the embedding among them where it is the head too.
uint64_t matrix_bytes() {
  const io::Weights weights = io::Weights::open(kFile);
  const bool own_head = weights.find("output.weight") != nullptr;
  uint64_t bytes = 0;
  for (const io::WeightEntry& tensor : weights.tensors()) {
    if (tensor.shape.size() == 2 && !(own_head && tensor.name == "token_embd.weight")) bytes += tensor.bytes.size();
  }
  return bytes;
}

TEST(LoadProgress, CountsEveryMatrixOnce) {
  for (const Arithmetic arithmetic : {Arithmetic::kExact, Arithmetic::kFast}) {
    std::vector<uint64_t> parts;
    LoadOptions options{.arithmetic = arithmetic, .n_threads = 2, .limits = {}, .on_progress = {}};
    options.on_progress = [&](uint64_t bytes) { parts.push_back(bytes); };
    Model::load(kFile, options);
    uint64_t sum = 0;
    for (const uint64_t bytes : parts) sum += bytes;
    EXPECT_EQ(sum, matrix_bytes());
    EXPECT_GT(parts.size(), 10u);
  }
}

TEST(LoadProgress, TheListenerEndsIt) {
  int calls = 0;
  LoadOptions options;
  options.on_progress = [&](uint64_t) {
    if (++calls == 3) fail(ErrorCode::kCancelled, "enough");
  };
  try {
    Model::load(kFile, options);
    ADD_FAILURE() << "loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  }
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace kpd::llm
