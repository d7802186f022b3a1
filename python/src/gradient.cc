// python: kpd.gradient over kpd/gradient/gradient.h.
#include "bind.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "kpd/gradient/gradient.h"

namespace nb = nanobind;

namespace kpd::python {
namespace {

using Input = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::bytes encode(const Input& x, const std::string& spec, uint64_t seed, uint64_t client) {
  gradient::Encoder encoder({{"", DType::kFloat32, {x.size()}}}, gradient::Codec::parse(spec), gradient::RunSecret{});
  std::vector<uint8_t> out(encoder.max_bytes());
  const std::vector<TensorView> views = {std::span<const float>(x.data(), x.size())};
  uint64_t n = 0;
  {
    nb::gil_scoped_release release;
    n = encoder.encode_file(views, {seed, 0, client}, out);
  }
  return nb::bytes(out.data(), n);
}

nb::object decode(const nb::bytes& bytes) {
  const std::span<const uint8_t> stream(static_cast<const uint8_t*>(bytes.data()), bytes.size());
  const gradient::StreamInfo info = gradient::read_stream_info(stream, "message");
  if (!info.is_file || info.tensors.size() != 1) fail(ErrorCode::kUnsupported, "message: expected one array");
  nb::object out = nb::module_::import_("numpy").attr("empty")(info.tensors[0].count, "float32");
  auto array = nb::cast<nb::ndarray<float, nb::ndim<1>, nb::c_contig>>(out);
  nb::gil_scoped_release release;
  gradient::decode_file_tensor(stream, info, 0, {array.data(), array.size()});
  return out;
}

}  // namespace

void bind_gradient(nb::module_& m) {
  m.def("encode", &encode, nb::arg("array"), nb::arg("spec"), nb::arg("seed"), nb::arg("client") = 0);
  m.def("decode", &decode, nb::arg("message"));
}

}  // namespace kpd::python
