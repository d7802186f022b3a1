// tools: `kpd inspect MODEL`: what the files of a language model hold. The weights are only mapped; a tensor's statistics read
// that tensor alone.
#include "inspect_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "inspect_language.h"
#include "kpd/base/error.h"
#include "kpd/base/spec.h"
#include "kpd/io/file.h"
#include "kpd/io/gguf.h"
#include "kpd/io/weights.h"
#include "kpd/quant/blocks.h"

namespace kpd::tool {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

void print(const Json& object) { fmt::print("{}\n", object.dump(-1, ' ', false, Json::error_handler_t::replace)); }

double bits_per_weight(uint64_t bytes, uint64_t count) {
  return count == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(count);
}

// A tensor, whether a model's kernels can read it or not.
struct Shown {
  std::string name, type;
  std::vector<uint64_t> shape;
  uint64_t count;
  std::span<const uint8_t> bytes;
};

Shown shown(const io::WeightEntry& tensor) {
  return {tensor.name, block_type_info(tensor.type).name, tensor.shape, tensor.count(), tensor.bytes};
}

Shown shown(const io::SafetensorsRecord& tensor) {
  return {tensor.name, printable(tensor.type), tensor.shape, tensor.count(), tensor.bytes};
}

std::vector<Shown> shown(const io::Weights& weights) {
  std::vector<Shown> all;
  for (const io::WeightEntry& tensor : weights.tensors()) all.push_back(shown(tensor));
  for (const io::SafetensorsRecord& tensor : weights.others()) all.push_back(shown(tensor));
  return all;
}

struct TypeTotal {
  uint64_t tensors = 0, weights = 0, bytes = 0;
};

struct Overview {
  std::string format;
  std::map<std::string, TypeTotal> types;
  TypeTotal total;
};

Overview overview(const io::Weights& weights) {
  Overview o;
  o.format = weights.gguf() ? "GGUF" : "safetensors";
  for (const Shown& tensor : shown(weights)) {
    for (TypeTotal* total : {&o.types[tensor.type], &o.total}) {
      ++total->tensors;
      total->weights += tensor.count;
      total->bytes += tensor.bytes.size();
    }
  }
  return o;
}

Json model_json(const std::string& path, const io::Weights& weights, const Overview& o, const LanguageFacts& language) {
  Json object = {{"model", path}, {"format", o.format}};
  object.update(language.description);
  if (!language.problem.empty()) object["problem"] = language.problem;
  object["parameters"] = o.total.weights;
  object["bytes"] = o.total.bytes;
  object["bits_per_weight"] = bits_per_weight(o.total.bytes, o.total.weights);
  object["types"] = Json::array();
  for (const auto& [name, t] : o.types) {
    object["types"].push_back({{"type", name}, {"tensors", t.tensors}, {"parameters", t.weights}, {"bytes", t.bytes}});
  }
  object["tokenizer"] = language.tokenizer;
  object["tensors"] = Json::array();
  for (const Shown& tensor : shown(weights)) {
    object["tensors"].push_back(
        {{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}, {"bytes", tensor.bytes.size()}});
  }
  return object;
}

void print_model(const std::string& path, const io::Weights& weights, const Overview& o, const LanguageFacts& language) {
  constexpr double kMib = 1024.0 * 1024.0;
  fmt::print("{}: {}, {} tensors, {:.2f} M parameters, {:.2f} MiB, {:.3f} bits per weight\n", printable(path), o.format,
             o.total.tensors, static_cast<double>(o.total.weights) / 1e6, static_cast<double>(o.total.bytes) / kMib,
             bits_per_weight(o.total.bytes, o.total.weights));
  fmt::print("{}", language.description_text);
  if (!language.problem.empty()) fmt::print("kpd cannot run it: {}\n", printable(language.problem));
  fmt::print("{}", language.tokenizer_text);
  fmt::print("  {:<8} {:>8} {:>16} {:>16} {:>16}\n", "type", "tensors", "parameters", "bytes", "bits per weight");
  for (const auto& [name, t] : o.types) {
    fmt::print("  {:<8} {:>8} {:>16} {:>16} {:>16.3f}\n", name, t.tensors, t.weights, t.bytes,
               bits_per_weight(t.bytes, t.weights));
  }
  for (const Shown& tensor : shown(weights)) {
    fmt::print("  {:<40} {:<8} [{}]\n", printable(tensor.name), tensor.type, fmt::join(tensor.shape, ", "));
  }
}

struct Statistics {
  double min = INFINITY, max = -INFINITY, sum = 0, squares = 0;
  uint64_t zeros = 0, nonfinite = 0, finite = 0;

  void add(double v) {
    if (!std::isfinite(v)) {
      ++nonfinite;
      return;
    }
    ++finite;
    min = std::min(min, v);
    max = std::max(max, v);
    sum += v;
    squares += v * v;
    if (v == 0) ++zeros;
  }
};

Statistics statistics(const io::WeightEntry& tensor) {
  const BlockTypeInfo& info = block_type_info(tensor.type);
  const uint64_t count = tensor.count(), step = 64 * 1024 / info.block_values * info.block_values;
  std::vector<float> values;
  Statistics s;
  for (uint64_t at = 0; at < count; at += step) {
    values.resize(std::min(step, count - at));
    quant::dequantize_blocks(tensor.type, tensor.bytes, at, values);
    for (const float v : values) s.add(static_cast<double>(v));
  }
  return s;
}

template <class T>
void add_all(std::span<const uint8_t> bytes, Statistics& s) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    s.add(static_cast<double>(value));
  }
}

// None of a type that we cannot read.
std::optional<Statistics> statistics(const io::SafetensorsRecord& tensor) {
  if (!tensor.dtype) return std::nullopt;
  Statistics s;
  switch (*tensor.dtype) {
    // What a float does not hold.
    case DType::kFloat64:
      add_all<double>(tensor.bytes, s);
      return s;
    case DType::kInt32:
      add_all<int32_t>(tensor.bytes, s);
      return s;
    case DType::kUInt32:
      add_all<uint32_t>(tensor.bytes, s);
      return s;
    case DType::kInt64:
      add_all<int64_t>(tensor.bytes, s);
      return s;
    case DType::kUInt64:
      add_all<uint64_t>(tensor.bytes, s);
      return s;
    default:
      break;
  }
  const TensorView view = {tensor.bytes.data(), tensor.count(), *tensor.dtype};
  std::vector<float> values;
  for (uint64_t at = 0; at < view.count; at += values.size()) {
    values.resize(std::min<uint64_t>(64 * 1024, view.count - at));
    load_floats(view, at, values);
    for (const float v : values) s.add(static_cast<double>(v));
  }
  return s;
}

[[noreturn]] void no_such_tensor(const io::Weights& weights, const std::string& name) {
  const std::vector<Shown> all = shown(weights);
  std::vector<std::string_view> names;
  for (const Shown& tensor : all) names.push_back(tensor.name);
  const std::string_view near = nearest_word(name, names);
  usage("--tensor ", name, ": there is no such tensor",
        near.empty() ? std::string("; without --tensor all are listed")
                     : str("; did you mean '", printable(std::string(near)), "'?"));
}

int print_statistics(const Shown& tensor, const std::optional<Statistics>& known, bool json) {
  const Statistics s = known.value_or(Statistics{});
  const double n = static_cast<double>(std::max<uint64_t>(s.finite, 1));
  const double mean = s.sum / n, rms = std::sqrt(s.squares / n), zeros = static_cast<double>(s.zeros) / n;
  const double bits = bits_per_weight(tensor.bytes.size(), tensor.count);
  if (json) {
    Json object = {{"name", tensor.name},   {"type", tensor.type},          {"shape", tensor.shape},
                   {"count", tensor.count}, {"bytes", tensor.bytes.size()}, {"bits_per_weight", bits}};
    object["min"] = s.finite > 0 ? Json(s.min) : Json();
    object["max"] = s.finite > 0 ? Json(s.max) : Json();
    object["mean"] = known ? Json(mean) : Json();
    object["rms"] = known ? Json(rms) : Json();
    object["zeros"] = known ? Json(zeros) : Json();
    object["nonfinite"] = known ? Json(s.nonfinite) : Json();
    print(object);
    return kExitOk;
  }
  fmt::print("{}: {} [{}], {} numbers in {} bytes, {:.3f} bits per weight\n", printable(tensor.name), tensor.type,
             fmt::join(tensor.shape, ", "), tensor.count, tensor.bytes.size(), bits);
  if (!known) fmt::print("no statistics of this type\n");
  if (s.finite > 0)
    fmt::print("min {:.6g}, max {:.6g}, mean {:.6g}, rms {:.6g}, zeros {:.3f} %\n", s.min, s.max, mean, rms, 100 * zeros);
  if (s.nonfinite > 0) fmt::print("{} are infinite or not a number\n", s.nonfinite);
  return kExitOk;
}

int inspect_tensor(const io::Weights& weights, const std::string& name, bool json) {
  if (const io::WeightEntry* tensor = weights.find(name)) return print_statistics(shown(*tensor), statistics(*tensor), json);
  for (const io::SafetensorsRecord& tensor : weights.others()) {
    if (tensor.name == name) return print_statistics(shown(tensor), statistics(tensor), json);
  }
  no_such_tensor(weights, name);
}

}  // namespace

std::string printable(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

bool looks_like_model(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    // Any other folder is wrong content, as for every command that wants a file.
    for (const auto& entry : fs::directory_iterator(path, ignored)) {
      const std::string extension = entry.path().extension().string();
      if (entry.path().filename() == "config.json" || extension == ".safetensors" || extension == ".gguf") return true;
    }
    return false;
  }
  if (fs::is_regular_file(path, ignored) && fs::path(path).extension() == ".safetensors") return true;
  return fs::is_regular_file(path, ignored) && io::looks_like_gguf(io::map_file(path).bytes());
}

namespace {

int inspect(const io::Weights& weights, const std::string& path, const std::string& tensor, bool json) {
  if (!tensor.empty()) return inspect_tensor(weights, tensor, json);
  const Overview o = overview(weights);
  const LanguageFacts language = language_facts(path, weights);
  if (json) {
    print(model_json(path, weights, o, language));
  } else {
    print_model(path, weights, o, language);
  }
  return kExitOk;
}

}  // namespace

int inspect_model(const std::string& path, const std::string& tensor, bool json) {
  return inspect(io::Weights::open(path, {}, io::OtherTensors::kKeep), path, tensor, json);
}

bool holds_weights(const io::MappedFile& file) {
  return io::looks_like_gguf(file.bytes()) || io::looks_like_safetensors(file.bytes());
}

int inspect_weights(io::MappedFile file, const std::string& name, const std::string& tensor, bool json) {
  std::vector<io::WeightEntry> tensors;
  std::vector<io::SafetensorsRecord> records;
  std::shared_ptr<const io::GgufMetadata> metadata;
  if (io::looks_like_gguf(file.bytes())) {
    io::GgufFile gguf = io::parse_gguf(file.bytes(), name);
    tensors = std::move(gguf.tensors);
    metadata = std::make_shared<const io::GgufMetadata>(std::move(gguf.metadata));
  } else {
    records = io::list_safetensors(file.bytes(), name);
  }
  std::vector<io::MappedFile> files;
  files.push_back(std::move(file));
  return inspect(io::Weights(name, std::move(files), std::move(tensors), std::move(metadata), std::move(records)), name, tensor,
                 json);
}

}  // namespace kpd::tool
