// fuzz: io's .npy reader. Anything thrown but kpd::Error is a finding, as is a read outside the input.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/io/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const kpd::io::TensorEntry entry = kpd::io::parse_npy({data, size}, "input.npy");
    std::vector<float> values(entry.count);
    kpd::load_floats(entry.view(), 0, values);
    // What was accepted has a canonical form, which must read back as the same array.
    std::vector<uint8_t> again = kpd::io::npy_header(entry.dtype, entry.shape);
    const auto* first = static_cast<const uint8_t*>(entry.data);
    again.insert(again.end(), first, first + entry.count * kpd::dtype_bytes(entry.dtype));
    const kpd::io::TensorEntry back = kpd::io::parse_npy(again, "again.npy");
    if (back.shape != entry.shape || back.dtype != entry.dtype || back.count != entry.count) __builtin_trap();
  } catch (const kpd::Error&) {
  }
  return 0;
}
