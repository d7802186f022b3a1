// fuzz: GGUF files. What is accepted must lie within the input, decode, and be the same file again once written and read;
// its metadata describe a model or are refused.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/io/gguf.h"
#include "kpd/quant/blocks.h"
#ifdef KPD_FUZZ_LLM
#include "kpd/llm/model_description.h"
#endif

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using kpd::io::GgufFile;
using kpd::io::GgufValue;

const std::string& again_path() {
  // In memory where there is such a folder: a write is flushed to its device.
  static const std::string path = [] {
    const std::filesystem::path shm = "/dev/shm";
    const std::filesystem::path folder = std::filesystem::is_directory(shm) ? shm : std::filesystem::temp_directory_path();
    return (folder / ("kpd-gguf-fuzz-" + std::to_string(getpid()) + ".gguf")).string();
  }();
  static const bool registered = std::atexit([] { unlink(again_path().c_str()); }) == 0;
  (void)registered;
  return path;
}

bool same_real(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool same_value(const GgufValue& a, const GgufValue& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return same_real(*x, std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    const auto& y = std::get<std::vector<double>>(b);
    return std::equal(x->begin(), x->end(), y.begin(), y.end(), same_real);
  }
  return a == b;
}

// Every accessor either converts or refuses.
void ask(const kpd::io::GgufMetadata& m, const std::string& key) {
  const auto attempt = [](const auto& fn) {
    try {
      fn();
    } catch (const kpd::Error&) {
    }
  };
  attempt([&] { (void)m.number(key); });
  attempt([&] { (void)m.real(key); });
  attempt([&] { (void)m.boolean(key); });
  attempt([&] { (void)m.text(key); });
  attempt([&] { (void)m.texts(key); });
  attempt([&] { (void)m.reals(key); });
  attempt([&] { (void)m.integers(key); });
}

void check(const GgufFile& file, const uint8_t* data, size_t size) {
  for (const kpd::io::WeightEntry& t : file.tensors) {
    if (t.bytes.data() < data || t.bytes.data() + t.bytes.size() > data + size) __builtin_trap();
    std::vector<float> values(t.count());
    kpd::quant::dequantize_blocks(t.type, t.bytes, 0, values);
  }
  for (size_t i = 0; i < std::min<size_t>(file.metadata.values.size(), 16); ++i)
    ask(file.metadata, file.metadata.values[i].first);
}

// As a model: described with sizes that fit one another, or refused.
void describe([[maybe_unused]] const GgufFile& file) {
#ifdef KPD_FUZZ_LLM
  try {
    const kpd::llm::ModelDescription d = kpd::llm::describe_gguf(file.metadata);
    if (d.layers.empty() || d.ropes.empty()) __builtin_trap();
    for (const auto& layer : d.layers) {
      if (layer.n_heads % layer.n_kv_heads != 0 || layer.source >= d.n_file_layers) __builtin_trap();
    }
    if (d.temperature_scale != 0 && d.temperature_length == 0) __builtin_trap();
  } catch (const kpd::Error&) {
  }
#endif
}

void check_again(const GgufFile& file) {
  try {
    save_gguf(again_path(), file.metadata, file.tensors);
  } catch (const kpd::Error& e) {
    if (e.code() == kpd::ErrorCode::kInvalidArgument) return;  // names longer than ggml reads
    throw;
  }
  const kpd::io::MappedFile mapped = kpd::io::map_file(again_path());
  const GgufFile back = kpd::io::parse_gguf(mapped.bytes(), "again.gguf");
  size_t kept = 0;
  for (const auto& [key, value] : file.metadata.values) {
    if (key == "general.alignment") continue;
    if (kept >= back.metadata.values.size()) __builtin_trap();
    const auto& [key_back, value_back] = back.metadata.values[kept++];
    if (key != key_back || !same_value(value, value_back)) __builtin_trap();
  }
  if (kept != back.metadata.values.size() || file.tensors.size() != back.tensors.size()) __builtin_trap();
  for (size_t i = 0; i < back.tensors.size(); ++i) {
    const auto &a = file.tensors[i], &b = back.tensors[i];
    if (a.name != b.name || a.type != b.type || a.shape != b.shape) __builtin_trap();
    if (!std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  GgufFile file;
  try {
    file = kpd::io::parse_gguf({data, size}, "input.gguf");
  } catch (const kpd::Error&) {
    return 0;
  }
  check(file, data, size);
  describe(file);
  check_again(file);
  return 0;
}

// Moves one aligned or unaligned field of 4 or 8 bytes to a value at an edge, or leaves the bytes to libFuzzer.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (size < 24 || seed % 4 != 0) return LLVMFuzzerMutate(data, size, max_size);
  const size_t at = 8 + (seed / 4) % (size - 16 + 1);
  const uint64_t old = kpd::load_u64(data + at);
  const uint64_t edges[] = {0, 1, old + 1, old - 1, old + 32, old ^ (uint64_t{1} << (seed % 64)), size, UINT64_MAX};
  const uint64_t v = edges[(seed >> 20) % std::size(edges)];
  if (seed & (1u << 28)) {
    kpd::store_u32(data + at, static_cast<uint32_t>(v));
  } else {
    kpd::store_u64(data + at, v);
  }
  return size;
}
