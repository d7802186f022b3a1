// python: what the files that bind kpd.gradient share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "arrays.h"
#include "kpd/gradient/gradient.h"

namespace kpd::python {

// A manifest of Python: immutable.
struct PyManifest {
  gradient::Manifest tensors;
};

// Of a Codec, a spec, or a sequence of specs and PATTERN=SPEC as the program's --codec takes them.
gradient::CodecPolicy policy_of(nanobind::handle codec);
// 32 bytes.
gradient::RunSecret secret_of(nanobind::handle secret);
// "refuse", "zero" or "pass".
gradient::NonFinite nonfinite_of(const std::string& name);

// The values of a mapping by the manifest's names, the elements of a sequence, or one array where the manifest has one tensor;
// in the manifest's order.
std::vector<nanobind::object> in_order(nanobind::handle tensors, const gradient::Manifest& manifest, const char* argument);
Place place_of(const gradient::Manifest& manifest, size_t index, const char* argument);

// What an encoder reads: shapes and types as the manifest has them (any floating type where it has one).
std::vector<Array> sources_of(nanobind::handle tensors, const gradient::Manifest& manifest, const char* argument);
void check_shape(const Array& array, const gradient::TensorInfo& info, const Place& place);

// Callers' arrays or new ones of the manifest's shapes, as float32 sums or results.
struct FloatTargets {
  nanobind::list objects;
  std::vector<Array> arrays;
  std::vector<std::span<float>> spans;
};
FloatTargets float_targets(nanobind::handle out, const gradient::Manifest& manifest, const char* argument);

}  // namespace kpd::python
