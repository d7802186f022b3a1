// fuzz: io's .safetensors reader. Anything thrown but kpd::Error is a finding, as is a read outside the input.
//
// Inputs open with the u64 length of the header; the mutator repairs it most of the time, so that the JSON behind it is
// reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
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
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size < 10 || seed % 8 == 0) return size;
  // The header ends with the last '}' of the input, if there is one.
  const auto end =
      std::find(std::make_reverse_iterator(data + size), std::make_reverse_iterator(data + 8), uint8_t{'}'}).base();
  if (end > data + 8) kpd::store_u64(data, static_cast<uint64_t>(end - (data + 8)));
  return size;
}
