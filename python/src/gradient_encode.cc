// python: encoders of messages and of files.
#include "bind.h"
#include "call.h"
#include "gradient.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace kpd::python {
namespace {

using gradient::EncodeReport;
using gradient::Manifest;
using gradient::MessageIds;

struct PyEncoder {
  PyEncoder(const PyManifest& manifest, nb::handle codec, nb::handle secret, const gradient::EncodeOptions& options)
      : tensors(manifest.tensors), encoder("Encoder", manifest.tensors, policy_of(codec), secret_of(secret), options) {}

  Manifest tensors;
  OneAtATime<gradient::Encoder> encoder;
  EncodeReport report;
};

std::vector<TensorView> views_of(std::vector<Array>& arrays) {
  std::vector<TensorView> views;
  views.reserve(arrays.size());
  for (Array& a : arrays) {
    a.gather();
    views.push_back(a.view());
  }
  return views;
}

// Runs encode(views, room), which returns how many bytes it wrote, into new bytes or into the caller's.
template <class Encode>
nb::object encode_into(std::vector<Array>& sources, nb::handle out, uint64_t max_bytes, const Encode& encode) {
  uint64_t n = 0;
  if (!out.is_none()) {
    std::vector<Array> target;
    const Place place{"out"};
    target.push_back(Array::target(out, place));
    (void)message_bytes(target[0], place);
    check_apart(target, sources, "out");
    if (target[0].count() < max_bytes)
      refuse(place, "has ", target[0].count(), " bytes of room; expected ", max_bytes, ", as many as may be needed");
    const std::span<uint8_t> room(static_cast<uint8_t*>(target[0].writable()), target[0].count());
    without_gil([&] { n = encode(views_of(sources), room); });
    const nb::object view = nb::steal(PyMemoryView_FromObject(out.ptr()));
    if (!view.is_valid()) throw nb::python_error();
    return view[nb::slice(nb::int_(0), nb::int_(n), nb::int_(1))];
  }
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(max_bytes));
  if (bytes == nullptr) throw nb::python_error();
  nb::object keep = nb::steal(bytes);
  const std::span<uint8_t> room(reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(bytes)), max_bytes);
  without_gil([&] { n = encode(views_of(sources), room); });
  bytes = keep.release().ptr();
  if (_PyBytes_Resize(&bytes, static_cast<Py_ssize_t>(n)) != 0) throw nb::python_error();
  return nb::steal(bytes);
}

nb::object encode_message(PyEncoder& self, nb::handle tensors, uint64_t run, uint64_t round, uint64_t client, uint64_t weight,
                          uint64_t base_model_hash, nb::handle out) {
  const OneAtATime<gradient::Encoder>::Use encoder(self.encoder);
  std::vector<Array> sources = sources_of(tensors, self.tensors, "tensors");
  const MessageIds ids{run, round, client, base_model_hash, weight};
  return encode_into(sources, out, encoder->max_bytes(), [&](const std::vector<TensorView>& views, std::span<uint8_t> room) {
    return encoder->encode_message(views, ids, room, &self.report);
  });
}

// File form, of tensors whose types and shapes are their own.
nb::object encode_file(nb::handle names, nb::handle tensors, nb::handle codec, uint64_t seed, uint64_t round, uint64_t client,
                       const std::string& nonfinite, int threads, std::optional<std::string> dtype,
                       const gradient::FileMetadata& metadata, nb::handle out) {
  std::optional<DType> as;
  if (dtype) {
    as = parse_dtype(*dtype);
    if (!as) fail(ErrorCode::kInvalidArgument, "dtype: '", *dtype, "'; expected the name of a type, e.g. bfloat16");
  }
  Manifest manifest;
  std::vector<Array> sources;
  const bool alone = names.is_none();
  if (alone) {
    const Place place{"array"};
    sources.push_back(Array::source(tensors, place, as));
    if (sources[0].shape().empty()) refuse(place, "has no dimension; expected at least one, e.g. x.reshape(1)");
    manifest.push_back({"", sources[0].dtype(), sources[0].shape()});
  } else {
    size_t i = 0;
    for (const nb::handle object : tensors) {
      const auto name = nb::cast<std::string>(names[i++]);
      sources.push_back(Array::source(object, {"tensors", -1, name, true}, as));
      manifest.push_back({name, sources.back().dtype(), sources.back().shape()});
    }
  }
  if (as) {
    for (const gradient::TensorInfo& t : manifest) {
      if (t.dtype == *as || alone == false) continue;
      fail(ErrorCode::kInvalidArgument, "array: has elements of ", dtype_name(t.dtype), "; expected ", dtype_name(*as),
           " as dtype says");
    }
  }
  gradient::Encoder encoder(std::move(manifest), policy_of(codec), gradient::RunSecret{},
                            {.threads = threads, .nonfinite = nonfinite_of(nonfinite), .metadata = metadata});
  return encode_into(sources, out, encoder.max_bytes(), [&](const std::vector<TensorView>& views, std::span<uint8_t> room) {
    return encoder.encode_file(views, {seed, round, client}, room);
  });
}

void bind_report(nb::module_& m) {
  nb::class_<EncodeReport> report(m, "EncodeReport", "What encoding one message did; exact, from the codes and scales sent.");
  report.def_ro("elements", &EncodeReport::elements, "Numbers in all tensors.")
      .def_ro("stream_bytes", &EncodeReport::stream_bytes, "Bytes of the whole message.")
      .def_ro("norm2", &EncodeReport::norm2, "Sum of squares of the input.")
      .def_ro("error2", &EncodeReport::error2, "Sum of squares of (decoded - input).")
      .def_ro("nonfinite", &EncodeReport::nonfinite, "Numbers that were NaN or infinite.")
      .def_prop_ro("vnmse", &EncodeReport::vnmse, "error2 / norm2.")
      .def("__repr__", [](const EncodeReport& r) {
        return str("EncodeReport(elements=", r.elements, ", stream_bytes=", r.stream_bytes, ", vnmse=", r.vnmse(), ")");
      });
}

#define KPD_ENCODE(out)                                                                               \
  "def encode(self, tensors: typing.Any, *, run: int = 0, round: int, client: int, weight: int = 1, " \
  "base_model_hash: int = 0, " out ") -> "

constexpr const char* kEncodeDoc =
    "Compresses tensors into one message.\n\n"
    "tensors: a mapping by the manifest's names, a list in its order, or one array where it has one tensor. Shapes as there; "
    "any\n"
    "floating type where it has one, the same type where it has an exact one (integers, bool, 8-bit floats). float32, "
    "float16,\n"
    "bfloat16 and float64 are read as they lie; what is not contiguous is copied first.\n"
    "run, round, client: name the message and choose its rotations; no two messages of a run may have the same three.\n"
    "out: bytes to write into (bytearray, memoryview, uint8 array), max_bytes of them suffice; returned is a memoryview of the "
    "part\n"
    "that was written. Without it new bytes.\n"
    "NaN and infinity are an Error that names tensor and index unless the encoder's `nonfinite` says otherwise.";

}  // namespace

void bind_gradient_encode(nb::module_& m) {
  bind_report(m);
  nb::class_<PyEncoder> encoder(
      m, "Encoder",
      "Compresses the tensors of one manifest, message after message; keep it, it allocates nothing after the first.\n\n"
      "codec: a spec, a Codec, or a list of specs and PATTERN=SPEC, e.g. ['eden:bits=2', '*norm*=float32'].\n"
      "secret: the 32 bytes that both sides share; threads: 0 is one per processor; nonfinite: 'refuse', 'zero' or 'pass';\n"
      "authenticated: messages get 16 bytes for a MAC. One call at a time; others are an Error.");
  encoder
      .def(
          "__init__",
          [](PyEncoder* self, const PyManifest& manifest, nb::handle codec, nb::handle secret, int threads,
             const std::string& nonfinite, bool authenticated) {
            new (self) PyEncoder(manifest, codec, secret,
                                 gradient::EncodeOptions{
                                     .threads = threads, .nonfinite = nonfinite_of(nonfinite), .authenticated = authenticated});
          },
          nb::arg("manifest"), nb::arg("codec"), nb::arg("secret"), nb::kw_only(), nb::arg("threads") = 1,
          nb::arg("nonfinite") = "refuse", nb::arg("authenticated") = false,
          nb::sig("def __init__(self, manifest: Manifest, codec: Codec | str | collections.abc.Sequence[str], secret: "
                  "typing_extensions.Buffer, *, threads: int = 1, nonfinite: typing.Literal['refuse', 'zero', 'pass'] = "
                  "'refuse', authenticated: bool = False) -> None"))
      .def("encode", &encode_message, nb::arg("tensors"), nb::kw_only(), nb::arg("run") = 0, nb::arg("round"),
           nb::arg("client"), nb::arg("weight") = 1, nb::arg("base_model_hash") = 0, nb::arg("out") = nb::none(),
           nb::sig(KPD_ENCODE("out: None = None") "bytes"), kEncodeDoc)
      .def("encode", &encode_message, nb::arg("tensors"), nb::kw_only(), nb::arg("run") = 0, nb::arg("round"),
           nb::arg("client"), nb::arg("weight") = 1, nb::arg("base_model_hash") = 0, nb::arg("out"),
           nb::sig(KPD_ENCODE("out: typing_extensions.Buffer") "memoryview"))
      .def_prop_ro(
          "max_bytes", [](PyEncoder& self) { return OneAtATime<gradient::Encoder>::Use(self.encoder)->max_bytes(); },
          "Upper bound of the bytes of a message.")
      .def_prop_ro(
          "report", [](const PyEncoder& self) { return self.report; }, "What the last encode() did.")
      .def_prop_ro("manifest", [](const PyEncoder& self) { return PyManifest{self.tensors}; });
  bind_life(encoder, &PyEncoder::encoder, [](PyEncoder& self) { self.encoder.close(); });
  m.def("encode_file", &encode_file, nb::arg("names").none(), nb::arg("tensors").none(), nb::arg("codec"), nb::arg("seed"),
        nb::arg("round"), nb::arg("client"), nb::arg("nonfinite"), nb::arg("threads"), nb::arg("dtype").none(),
        nb::arg("metadata"), nb::arg("out").none(),
        nb::sig("def encode_file(names: list[str] | None, tensors: typing.Any, codec: Codec | str | "
                "collections.abc.Sequence[str], seed: int, round: int, client: int, nonfinite: str, threads: int, dtype: str | "
                "None, metadata: list[tuple[str, str]], out: typing.Any) -> typing.Any"));
}

}  // namespace kpd::python
