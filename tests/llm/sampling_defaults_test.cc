// What a model's files say about sampling.
#include <gtest/gtest.h>

#include <fstream>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/sampler.h"
#include "kpd/llm/sampling_defaults.h"

namespace kpd::llm {
namespace {

class SamplingDefaultsOf : public testing::TempFolder {
 protected:
  SamplingDefaults of(const std::string& json) {
    std::ofstream(path("generation_config.json")) << json;
    return sampling_defaults(folder_, nullptr);
  }
  std::string text(const std::string& json) { return of(json).text(); }
};

constexpr const char* kOwn = "temperature 0.8, top-k 40, top-p 0.95, min-p 0.05 (kpd's defaults)";

TEST_F(SamplingDefaultsOf, FoldersThatSayNothing) {
  EXPECT_EQ(sampling_defaults(folder_, nullptr).text(), kOwn);
  EXPECT_EQ(sampling_defaults(path("model.gguf"), nullptr).text(), kOwn);
  EXPECT_EQ(text(R"({"bos_token_id": 1, "eos_token_id": 2, "temperature": null})"), kOwn);
}

TEST_F(SamplingDefaultsOf, GenerationConfig) {
  // As Qwen2.5 and Gemma 3 have it.
  EXPECT_EQ(text(R"({"do_sample": true, "repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20})"),
            "temperature 0.7, top-k 20, top-p 0.8, repeat penalty 1.1 (generation_config.json)");
  EXPECT_EQ(text(R"({"do_sample": true, "top_k": 64, "top_p": 0.95})"),
            "temperature 1, top-k 64, top-p 0.95 (generation_config.json)");
  EXPECT_EQ(text(R"({"do_sample": true, "temperature": 0.6})"), "temperature 0.6, top-k 50 (generation_config.json)")
      << "transformers' top-k";
  EXPECT_EQ(text(R"({"temperature": 0.6, "top_p": 0.9, "top_k": 0})"), "temperature 0.6, top-p 0.9 (generation_config.json)");
  EXPECT_EQ(text(R"({"do_sample": true, "top_k": -1, "temperature": 0.5})"), "temperature 0.5 (generation_config.json)");
}

TEST_F(SamplingDefaultsOf, GreedyAndPenaltiesWithoutSampling) {
  EXPECT_EQ(text(R"({"do_sample": false, "temperature": 0.6})"), "greedy (generation_config.json)");
  EXPECT_EQ(text(R"({"do_sample": false, "repetition_penalty": 1.05})"),
            "greedy, repeat penalty 1.05 (generation_config.json)");
  EXPECT_EQ(text(R"({"repetition_penalty": 1.2})"),
            "temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, repeat penalty 1.2 (generation_config.json)");
}

TEST_F(SamplingDefaultsOf, WhatMakesNoSenseIsTheFilesFault) {
  EXPECT_KPD_ERROR(kCorruptData, "generation_config.json: temperature is not a number", of(R"({"temperature": "hot"})"));
  EXPECT_KPD_ERROR(kCorruptData, "generation_config.json: do_sample is neither", of(R"({"do_sample": 1})"));
  EXPECT_KPD_ERROR(kCorruptData, "generation_config.json: top-p is 3", of(R"({"do_sample": true, "top_p": 3})"));
  EXPECT_KPD_ERROR(kCorruptData, "not a JSON object", of("[]"));
}

TEST(SamplingDefaultsOfGguf, GeneralSampling) {
  io::GgufMetadata m;
  m.name = "model.gguf";
  EXPECT_EQ(sampling_defaults("model.gguf", &m).text(), kOwn);
  m.values = {{"general.sampling.temp", double{0.95f}}, {"general.sampling.top_k", int64_t{64}}};
  EXPECT_EQ(sampling_defaults("model.gguf", &m).text(),
            "temperature 0.95, top-k 64, top-p 0.95, min-p 0.05 (general.sampling of the GGUF file)");
  EXPECT_EQ(sampling_defaults("model.gguf", &m).options.temperature, 0.95) << "the decimal that a float of 32 bits stands for";
  m.values = {{"general.sampling.top_p", 0.8},
              {"general.sampling.min_p", 0.0},
              {"general.sampling.penalty_repeat", double{1.05f}},
              {"general.sampling.temp", 0.0}};
  SamplingDefaults d = sampling_defaults("model.gguf", &m);
  EXPECT_EQ(d.text(), "greedy, repeat penalty 1.05 (general.sampling of the GGUF file)");
  EXPECT_EQ(d.options.top_p, 0.8);
  EXPECT_EQ(d.options.min_p, 0);
  EXPECT_EQ(d.ignored, "");
  m.values = {{"general.sampling.mirostat", int64_t{2}},
              {"general.sampling.penalty_repeat", 1.1},
              {"general.sampling.penalty_last_n", int64_t{64}},
              {"general.sampling.xtc_probability", 0.5},
              {"general.sampling.sequence", std::string("top_k;temperature")}};
  d = sampling_defaults("model.gguf", &m);
  EXPECT_EQ(d.options.repeat_penalty, 1.1);
  EXPECT_EQ(d.ignored, "penalty_last_n 64, xtc_probability 0.5, mirostat 2, sequence top_k;temperature");
  m.values = {{"general.sampling.penalty_repeat", 1.1}, {"general.sampling.penalty_last_n", int64_t{0}}};
  EXPECT_EQ(sampling_defaults("model.gguf", &m).text(), kOwn) << "a penalty over no token";
  m.values = {{"general.sampling.temp", std::string("hot")}};
  EXPECT_KPD_ERROR(kCorruptData, "general.sampling.temp", sampling_defaults("model.gguf", &m));
}

}  // namespace
}  // namespace kpd::llm
