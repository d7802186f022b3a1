// python: codecs, manifests and the arguments that all of kpd.gradient takes.
#include "bind.h"
#include "gradient.h"

#include <cmath>

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace kpd::python {

using gradient::Codec;
using gradient::CodecPolicy;
using gradient::Manifest;
using gradient::TensorInfo;

CodecPolicy policy_of(nb::handle codec) {
  if (nb::isinstance<Codec>(codec)) return CodecPolicy(nb::cast<Codec>(codec));
  if (nb::isinstance<nb::str>(codec)) return CodecPolicy(Codec::parse(nb::cast<std::string>(codec)));
  if (PySequence_Check(codec.ptr()) != 0) {
    std::vector<std::string> texts;
    for (const nb::handle text : codec) {
      if (!nb::isinstance<nb::str>(text)) throw nb::type_error("codec: expected specs and PATTERN=SPEC as str");
      texts.push_back(nb::cast<std::string>(text));
    }
    return CodecPolicy::parse(texts, Codec::parse("eden:bits=1"));
  }
  throw nb::type_error("codec: expected a spec such as 'eden:bits=1', a Codec, or a sequence of specs and PATTERN=SPEC");
}

gradient::RunSecret secret_of(nb::handle secret) {
  gradient::RunSecret made;
  const Place place{"secret"};
  const Array array = Array::source(secret, place);
  const std::span<const uint8_t> bytes = message_bytes(array, place);
  if (bytes.size() != made.bytes.size()) refuse(place, "has ", bytes.size(), " bytes; expected 32");
  std::copy(bytes.begin(), bytes.end(), made.bytes.begin());
  return made;
}

gradient::NonFinite nonfinite_of(const std::string& name) {
  if (name == "refuse") return gradient::NonFinite::kRefuse;
  if (name == "zero") return gradient::NonFinite::kZero;
  if (name == "pass") return gradient::NonFinite::kPass;
  fail(ErrorCode::kInvalidArgument, "nonfinite: '", name, "'; expected refuse, zero or pass");
}

Place place_of(const Manifest& manifest, size_t index, const char* argument) {
  Place place{argument};
  if (manifest.size() == 1 && manifest[0].name.empty()) return place;
  place.keyed = true;
  place.key = manifest[index].name;
  return place;
}

std::vector<nb::object> in_order(nb::handle tensors, const Manifest& manifest, const char* argument) {
  std::vector<nb::object> objects;
  objects.reserve(manifest.size());
  const bool listed = nb::isinstance<nb::list>(tensors) || nb::isinstance<nb::tuple>(tensors);
  if (!listed && PyMapping_Check(tensors.ptr()) != 0 && nb::hasattr(tensors, "keys")) {
    const auto n = static_cast<size_t>(PyMapping_Size(tensors.ptr()));
    for (const TensorInfo& info : manifest) {
      PyObject* const value = PyMapping_GetItemString(tensors.ptr(), info.name.c_str());
      if (value == nullptr) {
        PyErr_Clear();
        fail(ErrorCode::kInvalidArgument, argument, ": has no tensor '", info.name, "' of the manifest");
      }
      objects.push_back(nb::steal(value));
    }
    if (n != manifest.size())
      fail(ErrorCode::kInvalidArgument, argument, ": has ", n, " tensors, the manifest ", manifest.size());
    return objects;
  }
  if (listed) {
    for (const nb::handle value : tensors) objects.push_back(nb::borrow(value));
  } else {
    objects.push_back(nb::borrow(tensors));
  }
  if (objects.size() != manifest.size())
    fail(ErrorCode::kInvalidArgument, argument, ": has ", objects.size(), " tensors, the manifest ", manifest.size());
  return objects;
}

void check_shape(const Array& array, const TensorInfo& info, const Place& place) {
  if (array.shape() == info.shape) return;
  refuse(place, "has shape ", shape_text(array.shape()), "; expected ", shape_text(info.shape));
}

std::vector<Array> sources_of(nb::handle tensors, const Manifest& manifest, const char* argument) {
  const std::vector<nb::object> objects = in_order(tensors, manifest, argument);
  std::vector<Array> arrays;
  arrays.reserve(manifest.size());
  for (size_t i = 0; i < manifest.size(); ++i) {
    const Place place = place_of(manifest, i, argument);
    arrays.push_back(Array::source(objects[i], place, manifest[i].dtype));
    const DType got = arrays.back().dtype(), wanted = manifest[i].dtype;
    if (got != wanted && (dtype_is_exact(got) || dtype_is_exact(wanted))) {
      refuse(place, "has elements of ", dtype_name(got), "; expected ",
             dtype_is_exact(wanted) ? dtype_name(wanted) : "float32, float16, bfloat16 or float64");
    }
    check_shape(arrays.back(), manifest[i], place);
  }
  return arrays;
}

FloatTargets float_targets(nb::handle out, const Manifest& manifest, const char* argument) {
  FloatTargets targets;
  targets.arrays.reserve(manifest.size());
  std::vector<nb::object> objects;
  if (out.is_none()) {
    for (const TensorInfo& info : manifest) objects.push_back(new_array(info.shape, DType::kFloat32));
  } else {
    objects = in_order(out, manifest, argument);
  }
  for (size_t i = 0; i < manifest.size(); ++i) {
    const Place place = place_of(manifest, i, argument);
    targets.objects.append(objects[i]);
    if (objects[i].is_none() && dtype_is_exact(manifest[i].dtype)) {
      targets.spans.emplace_back();
      continue;
    }
    targets.arrays.push_back(Array::target(objects[i], place));
    const Array& array = targets.arrays.back();
    if (array.dtype() != DType::kFloat32) refuse(place, "has elements of ", dtype_name(array.dtype()), "; expected float32");
    check_shape(array, manifest[i], place);
    targets.spans.emplace_back(static_cast<float*>(array.writable()), array.count());
  }
  return targets;
}

namespace {

PyManifest make_manifest(const nb::iterable& tensors) {
  PyManifest manifest;
  for (const nb::handle row : tensors) {
    std::tuple<std::string, std::string, std::vector<uint64_t>> t;
    if (!nb::try_cast(row, t)) throw nb::type_error("tensors: expected tuples (name, dtype, shape)");
    const std::optional<DType> dtype = parse_dtype(std::get<1>(t));
    if (!dtype) {
      fail(ErrorCode::kInvalidArgument, "tensors: '", std::get<0>(t), "' has dtype '", std::get<1>(t),
           "'; expected float32, bfloat16, float16, float64, bool, float8_e4m3, float8_e5m2 or an integer type");
    }
    manifest.tensors.push_back({std::get<0>(t), *dtype, std::get<2>(t)});
    (void)manifest.tensors.back().count();
  }
  return manifest;
}

PyManifest manifest_of(const nb::object& state, const std::optional<nb::dict>& dtypes) {
  PyManifest manifest;
  for (const nb::handle item : state.attr("items")()) {
    const auto name = nb::cast<std::string>(item[0]);
    const Place place{"state_dict", -1, name, true};
    TensorInfo info = describe(item[1], name, place);
    if (dtypes && dtypes->contains(name)) {
      const auto text = nb::cast<std::string>((*dtypes)[name.c_str()]);
      const std::optional<DType> dtype = parse_dtype(text);
      if (!dtype || dtype_bytes(*dtype) != dtype_bytes(info.dtype))
        refuse(place, "dtype '", text, "' does not fit elements of ", dtype_name(info.dtype));
      info.dtype = *dtype;
    }
    manifest.tensors.push_back(std::move(info));
  }
  return manifest;
}

nb::tuple shape_tuple(const TensorInfo& info) {
  nb::list shape;
  for (const uint64_t d : info.shape) shape.append(d);
  return nb::tuple(shape);
}

nb::list rows_of(const PyManifest& manifest) {
  nb::list rows;
  for (const TensorInfo& t : manifest.tensors) rows.append(nb::make_tuple(t.name, dtype_name(t.dtype), shape_tuple(t)));
  return rows;
}

uint64_t elements_of(const PyManifest& manifest) {
  uint64_t n = 0;
  for (const TensorInfo& t : manifest.tensors) n += t.count();
  return n;
}

void bind_codec(nb::module_& m) {
  nb::class_<Codec> codec(
      m, "Codec",
      "A parsed and checked spec of how to compress, e.g. Codec('eden:bits=1'); `kpd codecs` lists methods and "
      "keys.\n\nImmutable, hashable, equal where the specs say the same, and can be pickled. A wrong spec is an Error "
      "that names the position and the nearest choice.");
  codec
      .def(
          "__init__", [](Codec* self, const std::string& spec) { new (self) Codec(Codec::parse(spec)); }, nb::arg("spec"))
      .def_prop_ro("spec", &Codec::text, "The spec as it was given.")
      .def_prop_ro(
          "method", [](const Codec& c) { return std::string(c.row().name); }, "The method's name, e.g. 'eden'.")
      .def_prop_ro("bits", &Codec::bits, "Bits a number, without headers and scales.")
      .def("limit_vnmse", &Codec::limit_vnmse, nb::arg("n") = 0,
           "Expected squared error |decoded - x|^2 / |x|^2 of a tensor of n elements, whatever their values; NaN where the "
           "method\n"
           "states no limit. n = 0: the limit of large n, from the papers' formulas.")
      .def("with_bits", &Codec::with_bits, nb::arg("bits"), "The same codec at another rate.")
      .def("__repr__", [](const Codec& c) { return str("Codec('", c.text(), "')"); })
      .def("__eq__",
           [](const Codec& a, const nb::object& b) {
             return nb::isinstance<Codec>(b) && a.params() == nb::cast<const Codec&>(b).params();
           })
      .def("__hash__",
           [](const Codec& c) { return nb::hash(nb::make_tuple(c.params().method, c.params().rate, c.params().param)); })
      .def(
          "__reduce__",
          [](nb::handle_t<Codec> self) {
            return nb::make_tuple(self.type(), nb::make_tuple(nb::cast<const Codec&>(self).text()));
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));
}

void bind_manifest(nb::module_& m) {
  nb::class_<PyManifest> manifest(m, "Manifest",
                                  "Names, element types and shapes of tensors, in order: what both sides of messages agree "
                                  "on.\n\nImmutable; can be pickled.");
  manifest
      .def(
          "__init__", [](PyManifest* self, const nb::iterable& tensors) { new (self) PyManifest(make_manifest(tensors)); },
          nb::arg("tensors"),
          nb::sig(
              "def __init__(self, tensors: collections.abc.Iterable[tuple[str, str, collections.abc.Sequence[int]]]) -> None"),
          "Of tuples (name, dtype, shape), e.g. ('conv.weight', 'float32', (64, 32, 3, 3)).")
      .def_static(
          "from_state_dict", &manifest_of, nb::arg("state_dict"), nb::arg("dtypes") = nb::none(),
          nb::sig("def from_state_dict(state_dict: collections.abc.Mapping[str, typing.Any], dtypes: "
                  "collections.abc.Mapping[str, str] | None = None) -> Manifest"),
          "Of a mapping of names to arrays or tensors; their memory is not read. `dtypes` says by name which uint16 arrays\n"
          "hold 'bfloat16' and which uint8 arrays 'float8_e4m3' or 'float8_e5m2'.")
      .def_prop_ro("tensors", &rows_of, nb::sig("def tensors(self) -> list[tuple[str, str, tuple[int, ...]]]"),
                   "Tuples (name, dtype, shape).")
      .def_prop_ro(
          "names",
          [](const PyManifest& p) {
            std::vector<std::string> names;
            for (const TensorInfo& t : p.tensors) names.push_back(t.name);
            return names;
          },
          "The names, in order.")
      .def_prop_ro("elements", &elements_of, "Numbers in all tensors.")
      .def_prop_ro(
          "hash", [](const PyManifest& p) { return gradient::manifest_hash(p.tensors); },
          "The 64 bits by which a message names its manifest.")
      .def("__len__", [](const PyManifest& p) { return p.tensors.size(); })
      .def("__eq__",
           [](const PyManifest& a, const nb::object& b) {
             return nb::isinstance<PyManifest>(b) &&
                    gradient::manifest_hash(a.tensors) == gradient::manifest_hash(nb::cast<const PyManifest&>(b).tensors);
           })
      .def("__hash__", [](const PyManifest& p) { return static_cast<Py_hash_t>(gradient::manifest_hash(p.tensors) >> 2); })
      .def("__repr__",
           [](const PyManifest& p) { return str("Manifest(", p.tensors.size(), " tensors, ", elements_of(p), " numbers)"); })
      .def(
          "__reduce__",
          [](nb::handle_t<PyManifest> self) {
            return nb::make_tuple(self.type(), nb::make_tuple(rows_of(nb::cast<const PyManifest&>(self))));
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));
}

}  // namespace

void bind_gradient_codec(nb::module_& m) {
  bind_codec(m);
  bind_manifest(m);
}

}  // namespace kpd::python
