// llm: what a model's files say about sampling: generation_config.json as transformers reads it, general.sampling.* of GGUF as
// llama.cpp writes it.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/sampler.h"
#include "kpd/llm/sampling_defaults.h"
#include "io/json.h"

namespace kpd::llm {
namespace {

constexpr double kMostTopK = 1 << 24;

std::string number_text(double value) {
  char text[32];
  const auto result = std::to_chars(text, text + sizeof(text), value, std::chars_format::general, 6);
  return {text, result.ptr};
}

// What kpd does where neither user nor model says anything: llama.cpp's values.
SamplingOptions own_defaults() {
  SamplingOptions o;
  o.temperature = 0.8;
  o.top_k = 40;
  o.top_p = 0.95;
  o.min_p = 0.05;
  return o;
}

// Values that a file gives, where it gives them.
struct Given {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_k, top_p, min_p, repeat_penalty;
  bool cuts() const { return temperature || top_k || top_p || min_p; }
};

void check_given(const SamplingOptions& o, const std::string& file) {
  try {
    check_sampling(o);
  } catch (const Error& e) {
    fail(ErrorCode::kCorruptData, file, ": ", e.what());
  }
}

void put(const Given& given, SamplingOptions& o) {
  o.temperature = std::max(given.temperature.value_or(o.temperature), 0.0);  // llama.cpp: not above 0 is greedy
  // Files say 0 or -1 where all tokens are meant, and 0 where top-p is off.
  if (given.top_k) o.top_k = static_cast<size_t>(std::clamp(*given.top_k, 0.0, kMostTopK));
  if (given.top_p) o.top_p = *given.top_p == 0 ? 1 : *given.top_p;
  o.min_p = given.min_p.value_or(o.min_p);
  o.repeat_penalty = given.repeat_penalty.value_or(o.repeat_penalty);
}

std::string config_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "generation_config.json").string();
}

// Nothing if the folder has no such file.
std::optional<Given> read_generation_config(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const io::MappedFile file = io::map_file(path);
  const io::Json config = io::parse_json(file.text(), path);
  if (!config.is_object()) fail(ErrorCode::kCorruptData, path, ": not a JSON object");
  const auto number = [&](const char* key) -> std::optional<double> {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null()) return std::nullopt;
    if (!it->is_number()) fail(ErrorCode::kCorruptData, path, ": ", key, " is not a number");
    return it->get<double>();
  };
  Given given;
  if (const auto it = config.find("do_sample"); it != config.end() && !it->is_null()) {
    if (!it->is_boolean()) fail(ErrorCode::kCorruptData, path, ": do_sample is neither true nor false");
    given.do_sample = it->get<bool>();
  }
  given.temperature = number("temperature");
  given.top_k = number("top_k");
  given.top_p = number("top_p");
  given.min_p = number("min_p");
  given.repeat_penalty = number("repetition_penalty");
  return given;
}

// What transformers takes where a file that samples is silent.
SamplingOptions drawn_as_transformers(const Given& given) {
  SamplingOptions o;
  o.temperature = 1;
  o.top_k = 50;
  put(given, o);
  return o;
}

Given read_gguf(const io::GgufMetadata& gguf, std::string& ignored) {
  const auto number = [&](const char* name) -> std::optional<double> {
    const std::string key = std::string("general.sampling.") + name;
    if (gguf.find(key) == nullptr) return std::nullopt;
    // Floats of 32 bits that stand for decimals: 0.95, not 0.949999988.
    const double value = gguf.real(key);
    const std::string text = number_text(value);
    double rounded = value;
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return rounded;
  };
  Given given;
  given.temperature = number("temp");
  given.top_k = number("top_k");
  given.top_p = number("top_p");
  given.min_p = number("min_p");
  given.repeat_penalty = number("penalty_repeat");
  const auto ignore = [&](const char* name, const std::string& value) {
    ignored += std::string(ignored.empty() ? "" : ", ") + name + " " + value;
  };
  if (const auto n = number("penalty_last_n"); n && *n == 0) {
    given.repeat_penalty.reset();
  } else if (n && *n > 0 && given.repeat_penalty.value_or(1) != 1) {
    ignore("penalty_last_n", number_text(*n));  // kpd's penalty sees all
  }
  if (const auto x = number("xtc_probability"); x && *x > 0) ignore("xtc_probability", number_text(*x));
  if (const auto x = number("mirostat"); x && *x != 0) ignore("mirostat", number_text(*x));
  if (gguf.find("general.sampling.sequence") != nullptr) ignore("sequence", gguf.text("general.sampling.sequence"));
  return given;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

}  // namespace

std::string describe_sampling(const SamplingOptions& o) {
  std::string text = o.temperature == 0 ? "greedy" : "temperature " + number_text(o.temperature);
  if (o.temperature > 0) {
    if (o.top_k > 0) text += ", top-k " + std::to_string(o.top_k);
    if (o.top_p < 1) text += ", top-p " + number_text(o.top_p);
    if (o.min_p > 0) text += ", min-p " + number_text(o.min_p);
  }
  if (o.repeat_penalty != 1) text += ", repeat penalty " + number_text(o.repeat_penalty);
  if (o.presence_penalty != 0) text += ", presence penalty " + number_text(o.presence_penalty);
  if (o.frequency_penalty != 0) text += ", frequency penalty " + number_text(o.frequency_penalty);
  if (!o.logit_bias.empty()) text += ", a bias of " + std::to_string(o.logit_bias.size()) + " tokens";
  return text;
}

std::string SamplingDefaults::text() const { return describe_sampling(options) + " (" + source + ")"; }

SamplingDefaults sampling_defaults(const std::string& path, const io::GgufMetadata* gguf) {
  SamplingDefaults d{own_defaults(), "kpd's defaults", {}};
  if (is_folder(path)) {
    const std::string file = config_path(path);
    if (const std::optional<Given> given = read_generation_config(file)) {
      if (given->do_sample == false) {
        d.options = {};
        d.options.repeat_penalty = given->repeat_penalty.value_or(1);
      } else if (given->do_sample == true || given->cuts()) {
        d.options = drawn_as_transformers(*given);
      } else if (given->repeat_penalty) {
        put(*given, d.options);
      } else {
        return d;
      }
      d.source = "generation_config.json";
      check_given(d.options, file);
      return d;
    }
  }
  if (gguf == nullptr) return d;
  const Given given = read_gguf(*gguf, d.ignored);
  if (!given.cuts() && !given.repeat_penalty) return d;
  put(given, d.options);
  d.source = "general.sampling of the GGUF file";
  check_given(d.options, gguf->name);
  return d;
}

}  // namespace kpd::llm
