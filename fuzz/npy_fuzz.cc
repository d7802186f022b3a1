// fuzz: io's .npy reader. Anything thrown but kpd::Error is a finding, as is a read outside the input, an element that is not
// where the format says, or an array that its canonical form does not give back. At its end the program says what was accepted.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/npy.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using namespace kpd;

struct Counts {
  unsigned long long inputs = 0, accepted = 0, swapped = 0, fortran = 0;
  ~Counts() {
    std::fprintf(stderr, "npy_fuzz: %llu inputs, %llu accepted, of them %llu big-endian, %llu in Fortran order\n", inputs,
                 accepted, swapped, fortran);
  }
};
Counts counts;

// The place of element `i` of C order in the file.
uint64_t place_of(const io::NpyArray& array, uint64_t i) {
  if (!array.fortran_order) return i;
  const std::vector<uint64_t>& shape = array.entry.shape;
  uint64_t place = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    uint64_t inner = 1, outer = 1;
    for (size_t e = d + 1; e < shape.size(); ++e) inner *= shape[e];
    for (size_t e = 0; e < d; ++e) outer *= shape[e];
    place += i / inner % shape[d] * outer;
  }
  return place;
}

void check_elements(const io::NpyArray& array, const std::vector<uint8_t>& native) {
  const size_t bytes = dtype_bytes(array.entry.dtype);
  const auto* first = static_cast<const uint8_t*>(array.entry.data);
  for (uint64_t i = 0; i < array.entry.count; ++i) {
    for (size_t b = 0; b < bytes; ++b) {
      if (native[bytes * i + b] != first[bytes * place_of(array, i) + (array.swapped ? bytes - 1 - b : b)]) __builtin_trap();
    }
  }
}

// A header of any type, order and small shape, and as much data as it says.
std::vector<uint8_t> make_array(std::minstd_rand& rng) {
  static const char* const kTypes[] = {"f4", "f2", "f8", "V2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"};
  const std::string type = kTypes[rng() % std::size(kTypes)];
  uint64_t bytes = static_cast<uint64_t>(type[1] - '0');
  std::string text = std::string("{'descr': '") + "<>|"[rng() % 3] + type +
                     "', 'fortran_order': " + (rng() % 2 == 0 ? "True" : "False") + ", 'shape': (";
  for (uint32_t dims = rng() % 5; dims > 0; --dims) {
    const uint64_t d = rng() % 8 == 0 ? 0 : 1 + rng() % 5;
    text += std::to_string(d) + ", ";
    bytes *= d;
  }
  text += ")}\n";
  std::vector<uint8_t> out = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<uint8_t>(text.size()), 0};
  out.insert(out.end(), text.begin(), text.end());
  for (; bytes > 0; --bytes) out.push_back(static_cast<uint8_t>(rng() >> 8));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counts.inputs++;
  try {
    const io::NpyArray array = io::read_npy({data, size}, "input.npy");
    const io::TensorEntry& entry = array.entry;
    counts.accepted++;
    counts.swapped += array.swapped;
    counts.fortran += array.fortran_order;
    if (io::npy_note(array).empty() != !(array.swapped || array.fortran_order || array.void_bfloat16)) __builtin_trap();
    std::vector<uint8_t> native(entry.count * dtype_bytes(entry.dtype));
    io::copy_native(array, native);
    check_elements(array, native);
    std::vector<float> values(entry.count);
    load_floats(entry.view(), 0, values);
    if (entry.dtype == DType::kBFloat16) return 0;  // .npy has no header for it
    std::vector<uint8_t> again = io::npy_header(entry.dtype, entry.shape);
    again.insert(again.end(), native.begin(), native.end());
    const io::TensorEntry back = io::parse_npy(again, "again.npy");
    if (back.shape != entry.shape || back.dtype != entry.dtype || back.count != entry.count) __builtin_trap();
    if (!native.empty() && std::memcmp(back.data, native.data(), native.size()) != 0) __builtin_trap();
  } catch (const Error& e) {
    if (std::string(e.what()).find('\n') != std::string::npos) __builtin_trap();
  }
  return 0;
}

// An array anew, or changes to the one given, whose header then mostly ends with the last '}'.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand rng(seed);
  if (rng() % 8 == 0) {
    const std::vector<uint8_t> made = make_array(rng);
    if (made.size() > max_size) return size;
    std::copy(made.begin(), made.end(), data);
    return made.size();
  }
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size < 12 || rng() % 4 == 0 || data[6] != 1) return size;
  const auto end =
      std::find(std::make_reverse_iterator(data + size), std::make_reverse_iterator(data + 10), uint8_t{'}'}).base();
  if (end > data + 10) store_u16(data + 8, static_cast<uint16_t>(end - (data + 10)));
  return size;
}
