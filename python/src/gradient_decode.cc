// python: decoders of messages and of files.
#include "bind.h"
#include "call.h"
#include "gradient.h"

#include <algorithm>
#include <cstring>

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace kpd::python {
namespace {

using gradient::Manifest;
using gradient::MessageIds;
using gradient::StreamInfo;

struct PyDecoder {
  PyDecoder(const PyManifest& manifest, nb::handle secret, int threads)
      : tensors(manifest.tensors),
        decoder("Decoder", manifest.tensors, secret_of(secret), gradient::DecodeOptions{.threads = threads}) {}

  Manifest tensors;
  OneAtATime<gradient::Decoder> decoder;
};
using UseDecoder = OneAtATime<gradient::Decoder>::Use;

constexpr Place kMessage{"message"};

std::span<Array> only(Array& array) { return {&array, 1}; }

MessageIds peek(PyDecoder& self, nb::handle message) {
  const Array bytes = Array::source(message, kMessage);
  return UseDecoder(self.decoder)->peek(message_bytes(bytes, kMessage));
}

double norm(PyDecoder& self, nb::handle message, uint64_t run, uint64_t round, uint64_t client, uint64_t base_model_hash) {
  const UseDecoder decoder(self.decoder);
  const Array bytes = Array::source(message, kMessage);
  const auto span = message_bytes(bytes, kMessage);
  double value = 0;
  without_gil([&] { value = decoder->norm(span, {run, round, client, base_model_hash}); });
  return value;
}

// Exact types come as they are, all others as float32.
nb::list decode(PyDecoder& self, nb::handle message, uint64_t run, uint64_t round, uint64_t client, uint64_t base_model_hash,
                nb::handle out) {
  const UseDecoder decoder(self.decoder);
  Array bytes = Array::source(message, kMessage);
  const auto span = message_bytes(bytes, kMessage);
  const MessageIds ids{run, round, client, base_model_hash};
  const Manifest& manifest = self.tensors;
  nb::list results;
  std::vector<nb::object> objects;
  if (out.is_none()) {
    (void)decoder->peek(span);  // before memory is taken for what may be no message
    for (const gradient::TensorInfo& t : manifest)
      objects.push_back(new_array(t.shape, dtype_is_exact(t.dtype) ? t.dtype : DType::kFloat32));
  } else {
    objects = in_order(out, manifest, "out");
  }
  std::vector<Array> targets;
  std::vector<std::span<float>> floats;
  for (size_t i = 0; i < manifest.size(); ++i) {
    const Place place = place_of(manifest, i, "out");
    targets.push_back(Array::target(objects[i], place));
    const bool exact = dtype_is_exact(manifest[i].dtype);
    const DType wanted = exact ? manifest[i].dtype : DType::kFloat32, got = targets[i].dtype();
    if (got != wanted && !(exact && dtype_bytes(got) == 1 && dtype_bytes(wanted) == 1))
      refuse(place, "has elements of ", dtype_name(got), "; expected ", dtype_name(wanted));
    check_shape(targets[i], manifest[i], place);
    floats.emplace_back(static_cast<float*>(exact ? nullptr : targets[i].writable()), exact ? 0 : targets[i].count());
    results.append(objects[i]);
  }
  check_apart(targets, only(bytes), "out");
  without_gil([&] {
    decoder->decode(span, ids, floats);
    for (size_t i = 0; i < manifest.size(); ++i) {
      if (!dtype_is_exact(manifest[i].dtype) || targets[i].count() == 0) continue;
      const auto elements = decoder->exact_bytes(span, ids, i);
      std::memcpy(targets[i].writable(), elements.data(), elements.size());
    }
  });
  return results;
}

void decode_add(PyDecoder& self, nb::handle message, nb::handle sums, float weight, uint64_t run, uint64_t round,
                uint64_t client, uint64_t base_model_hash) {
  const UseDecoder decoder(self.decoder);
  Array bytes = Array::source(message, kMessage);
  const auto span = message_bytes(bytes, kMessage);
  FloatTargets targets = float_targets(sums, self.tensors, "sums");
  check_apart(targets.arrays, only(bytes), "sums");
  without_gil([&] { decoder->decode_add(span, {run, round, client, base_model_hash}, weight, targets.spans); });
}

// One tensor of a file into memory of its own type or float32; what is narrower or wider goes through `floats`.
void decode_tensor(gradient::FileDecoder& decoder, std::span<const uint8_t> stream, const StreamInfo& info, size_t i,
                   Array& target, std::vector<float>& floats) {
  if (dtype_is_exact(info.manifest[i].dtype)) {
    const auto elements = gradient::decode_file_exact(stream, info, i);
    if (!elements.empty()) std::memcpy(target.writable(), elements.data(), elements.size());
    return;
  }
  if (target.dtype() == DType::kFloat32) {
    decoder.decode(i, {static_cast<float*>(target.writable()), target.count()});
    return;
  }
  floats.resize(target.count());
  decoder.decode(i, floats);
  store_floats(floats, target.dtype(), target.writable());
}

// The Python type of a tensor of a file: its own; bfloat16, which numpy has not, as float32.
DType result_dtype(DType dtype) { return dtype == DType::kBFloat16 ? DType::kFloat32 : dtype; }

Array file_target(nb::handle object, const gradient::TensorInfo& info, const Place& place) {
  Array target = Array::target(object, place);
  const bool exact = dtype_is_exact(info.dtype);
  const bool bytes = dtype_bytes(info.dtype) == 1 && dtype_bytes(target.dtype()) == 1;
  if (exact ? target.dtype() != info.dtype && !bytes : dtype_is_exact(target.dtype())) {
    refuse(place, "has elements of ", dtype_name(target.dtype()), "; expected ",
           exact ? dtype_name(info.dtype) : "float32, float16, bfloat16 or float64");
  }
  check_shape(target, info, place);
  return target;
}

// (names, arrays) of a file-form stream.
nb::tuple decode_file(nb::handle message, nb::handle out, int threads) {
  Array bytes = Array::source(message, kMessage);
  const auto stream = message_bytes(bytes, kMessage);
  StreamInfo info;
  without_gil([&] { info = gradient::read_stream_info(stream, "message"); });
  if (!info.is_file) {
    fail(ErrorCode::kUnsupported,
         "message: byte 0: is of the form between machines, which agree on manifest and secret; expected what "
         "encode() or save() makes, Decoder reads the others");
  }
  std::vector<nb::object> objects;
  if (out.is_none()) {
    for (const gradient::TensorInfo& t : info.manifest) objects.push_back(new_array(t.shape, result_dtype(t.dtype)));
  } else {
    objects = in_order(out, info.manifest, "out");
  }
  nb::list names, results;
  std::vector<Array> targets;
  for (size_t i = 0; i < info.manifest.size(); ++i) {
    const gradient::TensorInfo& t = info.manifest[i];
    targets.push_back(file_target(objects[i], t, place_of(info.manifest, i, "out")));
    names.append(t.name);
    results.append(objects[i]);
  }
  check_apart(targets, only(bytes), "out");
  without_gil([&] {
    gradient::FileDecoder decoder(stream, info, threads, "message");
    std::vector<float> floats;
    for (size_t i = 0; i < targets.size(); ++i) decode_tensor(decoder, stream, info, i, targets[i], floats);
  });
  return nb::make_tuple(names, results);
}

void bind_ids(nb::module_& m) {
  nb::class_<MessageIds> ids(m, "MessageIds", "Who sent a message, and for which step.");
  ids.def_ro("run", &MessageIds::run)
      .def_ro("round", &MessageIds::round)
      .def_ro("client", &MessageIds::client)
      .def_ro("base_model_hash", &MessageIds::base_model_hash)
      .def_ro("weight", &MessageIds::weight, "What the sender claims, e.g. its number of examples.")
      .def("__repr__", [](const MessageIds& i) {
        return str("MessageIds(run=", i.run, ", round=", i.round, ", client=", i.client,
                   ", base_model_hash=", i.base_model_hash, ", weight=", i.weight, ")");
      });
}

}  // namespace

void bind_gradient_decode(nb::module_& m) {
  bind_ids(m);
  nb::class_<PyDecoder> decoder(
      m, "Decoder",
      "Decodes messages of one manifest.\n\nA message that is damaged, or not the expected one (run, round, client, base "
      "model), is an\n"
      "Error before results are touched. secret: the 32 bytes that both sides share. One call at a time; others are an Error.");
  decoder
      .def(
          "__init__",
          [](PyDecoder* self, const PyManifest& manifest, nb::handle secret, int threads) {
            new (self) PyDecoder(manifest, secret, threads);
          },
          nb::arg("manifest"), nb::arg("secret"), nb::kw_only(), nb::arg("threads") = 1,
          nb::sig("def __init__(self, manifest: Manifest, secret: typing_extensions.Buffer, *, threads: int = 1) -> None"))
      .def("peek", &peek, nb::arg("message"), nb::sig("def peek(self, message: typing_extensions.Buffer) -> MessageIds"),
           "Reads the header only: who sent it, and for which step.")
      .def("norm", &norm, nb::arg("message"), nb::kw_only(), nb::arg("run") = 0, nb::arg("round"), nb::arg("client"),
           nb::arg("base_model_hash") = 0,
           nb::sig(
               "def norm(self, message: typing_extensions.Buffer, *, run: int = 0, round: int, client: int, base_model_hash: "
               "int = 0) -> float"),
           "Checks a message completely and returns the Euclidean norm of what it decodes to.")
      .def("decode", &decode, nb::arg("message"), nb::kw_only(), nb::arg("run") = 0, nb::arg("round"), nb::arg("client"),
           nb::arg("base_model_hash") = 0, nb::arg("out") = nb::none(),
           nb::sig("def decode(self, message: typing_extensions.Buffer, *, run: int = 0, round: int, client: int, "
                   "base_model_hash: int = 0, out: typing.Any = None) -> list[typing.Any]"),
           "The tensors of a message in the manifest's order: float32, those of exact types in their own.\n\n"
           "out: contiguous arrays to write into, as `tensors` of Encoder.encode; they are what is returned.")
      .def(
          "decode_add", &decode_add, nb::arg("message"), nb::arg("sums"), nb::arg("weight") = 1.0f, nb::kw_only(),
          nb::arg("run") = 0, nb::arg("round"), nb::arg("client"), nb::arg("base_model_hash") = 0,
          nb::sig("def decode_add(self, message: typing_extensions.Buffer, sums: typing.Any, weight: float = 1.0, *, run: int "
                  "= 0, round: int, client: int, base_model_hash: int = 0) -> None"),
          "sums += weight * decoded, in float32 arrays of the manifest's shapes; None leaves out a tensor of an exact type.\n\n"
          "Interrupted or told of a corrupt segment in its middle, the sums hold a part of the message.")
      .def_prop_ro("manifest", [](const PyDecoder& self) { return PyManifest{self.tensors}; });
  bind_life(decoder, &PyDecoder::decoder, [](PyDecoder& self) { self.decoder.close(); });
  m.def("decode_file", &decode_file, nb::arg("message"), nb::arg("out").none(), nb::arg("threads"),
        nb::sig("def decode_file(message: typing_extensions.Buffer, out: typing.Any, threads: int) -> tuple[list[str], "
                "list[typing.Any]]"));
}

}  // namespace kpd::python
