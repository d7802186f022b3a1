// fuzz: io's .safetensors reader. Anything thrown but kpd::Error is a finding, as is a read outside the input.
//
// Inputs open with the u64 length of the header; the mutator repairs it most of the time, so that the JSON behind it is
// reached, or writes a file of its own.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/safetensors.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

struct Counts {
  unsigned long long inputs = 0, accepted = 0;
  ~Counts() { std::fprintf(stderr, "safetensors_fuzz: %llu inputs, %llu accepted\n", inputs, accepted); }
};
Counts counts;

// A file of any types and small shapes, in any order, with as much data as they have.
std::vector<uint8_t> make_file(std::minstd_rand& rng) {
  static const std::pair<const char*, uint64_t> kTypes[] = {
      {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I8", 1},   {"I16", 2},     {"I32", 4},    {"I64", 8},
      {"U8", 1},  {"U16", 2},  {"U32", 4}, {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  std::string text = rng() % 2 == 0 ? R"({"__metadata__":{"a":"\\u00e9","":"x"})" : "{";
  uint64_t at = 0;
  for (uint64_t n = rng() % 5; n > 0; --n) {
    const auto& [type, size] = kTypes[rng() % std::size(kTypes)];
    std::string shape;
    uint64_t bytes = size;
    for (uint64_t dims = rng() % 4; dims > 0; --dims) {
      const uint64_t d = rng() % 8 == 0 ? 0 : 1 + rng() % 4;
      shape += (shape.empty() ? "" : ",") + std::to_string(d);
      bytes *= d;
    }
    text += std::string(text.size() > 1 ? "," : "") + "\"" + std::to_string(n) + R"(":{"dtype":")" + type + R"(","shape":[)" +
            shape + R"(],"data_offsets":[)" + std::to_string(at) + "," + std::to_string(at + bytes) + "]}";
    at += bytes;
  }
  text += "}" + std::string(rng() % 9, ' ');
  std::vector<uint8_t> out(8);
  kpd::store_u64(out.data(), text.size());
  out.insert(out.end(), text.begin(), text.end());
  for (; at > 0; --at) out.push_back(static_cast<uint8_t>(rng() >> 8));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counts.inputs++;
  try {
    const kpd::io::SafetensorsFile file = kpd::io::parse_safetensors({data, size}, "input.safetensors");
    counts.accepted++;
    uint64_t sum = 0;
    for (const auto& tensor : file.tensors) {
      std::vector<float> values(tensor.count);
      kpd::load_floats(tensor.view(), 0, values);
      sum += tensor.count * kpd::dtype_bytes(tensor.dtype);
    }
    if (sum + 8 + kpd::load_u64(data) != size) __builtin_trap();  // every byte belongs to one tensor
    std::vector<size_t> order;
    std::vector<uint8_t> again = kpd::io::safetensors_header(file.tensors, file.metadata, order);
    for (const size_t i : order) {
      const auto* first = static_cast<const uint8_t*>(file.tensors[i].data);
      again.insert(again.end(), first, first + file.tensors[i].count * kpd::dtype_bytes(file.tensors[i].dtype));
    }
    const kpd::io::SafetensorsFile back = kpd::io::parse_safetensors(again, "again.safetensors");
    if (back.metadata != file.metadata || back.tensors.size() != file.tensors.size()) __builtin_trap();
    for (size_t i = 0; i < back.tensors.size(); ++i) {
      const auto &a = file.tensors[i], &b = back.tensors[i];
      if (a.name != b.name || a.dtype != b.dtype || a.shape != b.shape) __builtin_trap();
    }
  } catch (const kpd::Error&) {
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand rng(seed);
  if (rng() % 8 == 0) {
    const std::vector<uint8_t> made = make_file(rng);
    if (made.size() > max_size) return size;
    std::copy(made.begin(), made.end(), data);
    return made.size();
  }
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size < 10 || seed % 8 == 0) return size;
  // The header ends with the last '}' of the input, if there is one.
  const auto end =
      std::find(std::make_reverse_iterator(data + size), std::make_reverse_iterator(data + 8), uint8_t{'}'}).base();
  if (end > data + 8) kpd::store_u64(data, static_cast<uint64_t>(end - (data + 8)));
  return size;
}
