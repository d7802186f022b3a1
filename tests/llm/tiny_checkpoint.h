// Checkpoints whose weights follow from their tensors' names (tests/golden/make_checkpoints.py): a folder is written from one
// small JSON file, as it stands there or changed.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/text/tokenizer.h"
#include "io/json.h"

namespace kpd::testing {

using Json = kpd::io::Json;

inline float tiny_weight(std::string_view tensor, uint64_t index, double scale, double offset) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : tensor) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  uint64_t z = h + index + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  const double u = 2.0 * static_cast<double>(z >> 40) / 16777216.0 - 1.0;
  return static_cast<float>(scale * u + offset);
}

struct TinyCheckpoint {
  struct Tensor {
    std::string name, seed;  // values follow from the seed
    std::vector<uint64_t> shape;
    double scale = 0, offset = 0;
    std::string type = "F32";  // I64: zeros
  };
  Json config;
  std::vector<Tensor> tensors;
  std::vector<kpd::text::TokenId> tokens;
  std::vector<uint32_t> rows;
  std::vector<float> logits;  // [rows, vocabulary]

  static TinyCheckpoint read(const std::string& path) {
    std::ifstream in(path);
    const Json all = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
    TinyCheckpoint c;
    c.config = all["config"];
    for (const auto& [name, t] : all["tensors"].items())
      c.tensors.push_back({name, name, t[0].get<std::vector<uint64_t>>(), t[1].get<double>(), t[2].get<double>()});
    c.tokens = all["tokens"].get<std::vector<kpd::text::TokenId>>();
    c.rows = all["rows"].get<std::vector<uint32_t>>();
    for (const Json& row : all["logits"]) {
      for (const Json& v : row) c.logits.push_back(v.get<float>());
    }
    return c;
  }

  Tensor* find(const std::string& name) {
    for (Tensor& t : tensors) {
      if (t.name == name) return &t;
    }
    return nullptr;
  }

  // config.json and model.safetensors.
  void write(const std::string& folder) const {
    std::ofstream(folder + "/config.json") << config.dump();
    Json header;
    std::string data;
    for (const Tensor& t : tensors) {
      uint64_t count = 1;
      for (const uint64_t n : t.shape) count *= n;
      const size_t first = data.size();
      if (t.type == "F32") {
        for (uint64_t i = 0; i < count; ++i) {
          const float v = tiny_weight(t.seed, i, t.scale, t.offset);
          data.append(reinterpret_cast<const char*>(&v), sizeof(v));
        }
      } else {
        data.append(count * 8, '\0');
      }
      header[t.name] = {{"dtype", t.type}, {"shape", t.shape}, {"data_offsets", {first, data.size()}}};
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const uint64_t size = text.size();
    std::ofstream out(folder + "/model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), sizeof(size));
    out << text << data;
  }
};

}  // namespace kpd::testing
