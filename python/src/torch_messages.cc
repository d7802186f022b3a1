// python: messages about pieces of a flat vector, for kpd.gradient.torch: a bucket of gradients is cut into slices, and each
// slice is encoded from where it lies and decoded into a sum. It must not hold the GIL while it codes.
#include "bind.h"
#include "call.h"
#include "gradient.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

namespace nb = nanobind;

namespace kpd::python {
namespace {

using gradient::Codec;
using gradient::CodecPolicy;

using AnyInput = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using InputBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Sum = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

DType float_type(const AnyInput& x) {
  if (x.dtype() == nb::dtype<float>()) return DType::kFloat32;
  if (x.dtype() == nb::dtype<double>()) return DType::kFloat64;
  const auto code = static_cast<nb::dlpack::dtype_code>(x.dtype().code);
  if (x.dtype().lanes == 1 && x.dtype().bits == 16) {
    if (code == nb::dlpack::dtype_code::Float) return DType::kFloat16;
    if (code == nb::dlpack::dtype_code::Bfloat) return DType::kBFloat16;
  }
  fail(ErrorCode::kInvalidArgument, "x: an element type that is no float, expected float32, bfloat16, float16 or float64");
}

constexpr uint64_t kRawBelow = 64;  // shorter tensors travel as float32

// One piece of a vector: elements [first, first + count) of the tensor of that name.
using Part = std::tuple<std::string, uint64_t, uint64_t, uint64_t>;  // name, first, count, elements of the whole tensor

class SliceMessages {
 public:
  SliceMessages(const std::vector<Part>& parts, const std::vector<std::string>& codec, const nb::bytes& secret, int threads)
      : encoder_({}, CodecPolicy(), {}), decoder_({}, {}) {
    const CodecPolicy given = CodecPolicy::parse(codec);
    CodecPolicy policy = given.base;
    gradient::Manifest manifest;
    for (const auto& [name, first, count, whole] : parts) {
      const bool all = first == 0 && count == whole;
      const std::string part = all ? name : str(name, "[", first, ":", first + count, "]");
      manifest.push_back({part, DType::kFloat32, {count}});
      counts_.push_back(count);
      elements_ += count;
      code_bytes_ += static_cast<double>(count) / 8 * (count < kRawBelow ? 32.0 : given.of(name).bits());
      // A pattern is about the whole tensor's name.
      const Codec& own = given.of(name);
      if (!given.by_name.empty()) policy.by_name.emplace_back(part, own);
    }
    const gradient::RunSecret run = secret_of(secret);
    encoder_ = gradient::Encoder(manifest, policy, run, {.threads = threads, .nonfinite = gradient::NonFinite::kZero});
    decoder_ = gradient::Decoder(manifest, run, {.threads = threads, .limits = {}});
  }

  uint64_t elements() const { return elements_; }
  uint64_t max_bytes() const { return encoder_.max_bytes(); }
  // Whether messages are about as long as max_bytes(), whatever they hold.
  bool fixed_length() const {
    return static_cast<double>(max_bytes()) < 1.02 * code_bytes_ + 256 + 24.0 * static_cast<double>(counts_.size());
  }

  // Bytes written, how many elements are not finite (and travel as 0), squared error, squared norm.
  std::tuple<uint64_t, uint64_t, double, double> encode(const AnyInput& x, uint64_t round, uint64_t client, const Bytes& out) {
    const DType type = float_type(x);
    check_size("x", x.size());
    std::vector<TensorView> views;
    const uint8_t* at = static_cast<const uint8_t*>(x.data());
    for (const uint64_t count : counts_) {
      views.emplace_back(at, count, type);
      at += count * dtype_bytes(type);
    }
    gradient::EncodeReport report;
    uint64_t bytes = 0;
    without_gil([&] { bytes = encoder_.encode_message(views, ids(round, client), {out.data(), out.size()}, &report); });
    return {bytes, report.nonfinite, report.error2, report.norm2};
  }

  void decode_add(const InputBytes& message, uint64_t round, uint64_t client, float weight, const Sum& sum) {
    check_size("sum", sum.size());
    std::vector<std::span<float>> parts;
    float* at = sum.data();
    for (const uint64_t count : counts_) {
      parts.emplace_back(at, count);
      at += count;
    }
    without_gil([&] { decoder_.decode_add({message.data(), message.size()}, ids(round, client), weight, parts); });
  }

 private:
  void check_size(std::string_view what, uint64_t size) const {
    if (size != elements_) fail(ErrorCode::kInvalidArgument, what, ": ", size, " elements, expected ", elements_);
  }
  static gradient::MessageIds ids(uint64_t round, uint64_t client) { return {.round = round, .client = client}; }

  std::vector<uint64_t> counts_;
  uint64_t elements_ = 0;
  double code_bytes_ = 0;
  gradient::Encoder encoder_;
  gradient::Decoder decoder_;
};

// The text of a policy, parsed and checked for averages that go on for many rounds.
std::string checked_policy(const std::vector<std::string>& texts, bool error_feedback) {
  const CodecPolicy policy = CodecPolicy::parse(texts);
  std::vector<Codec> all = {policy.base};
  for (const auto& [pattern, codec] : policy.by_name) all.push_back(codec);
  for (const Codec& codec : all) {
    if (error_feedback) {
      gradient::check_feedback(codec);
    } else if (codec.params().scale == gradient::ScaleKind::kBiased) {
      fail(ErrorCode::kInvalidArgument, "codec: ", codec.text(),
           " shrinks every vector, and without error_feedback=True nothing makes up for that; expected scale=unbiased");
    }
  }
  return policy.text();
}

}  // namespace

void bind_torch_messages(nb::module_& m) {
  nb::class_<SliceMessages>(
      m, "SliceMessages", "Messages about one slice of a flat vector: parts of tensors back to back. For one thread at a time.")
      .def(nb::init<const std::vector<Part>&, const std::vector<std::string>&, const nb::bytes&, int>(), nb::arg("parts"),
           nb::arg("codec"), nb::arg("secret"), nb::arg("threads") = 1)
      .def_prop_ro("elements", &SliceMessages::elements)
      .def_prop_ro("max_bytes", &SliceMessages::max_bytes)
      .def_prop_ro("fixed_length", &SliceMessages::fixed_length)
      .def("encode", &SliceMessages::encode, nb::arg("x"), nb::arg("round"), nb::arg("client"), nb::arg("out").noconvert(),
           nb::sig("def encode(self, x: object, round: int, client: int, out: object) -> tuple[int, int, float, float]"))
      .def("decode_add", &SliceMessages::decode_add, nb::arg("message").noconvert(), nb::arg("round"), nb::arg("client"),
           nb::arg("weight"), nb::arg("sum").noconvert(),
           nb::sig("def decode_add(self, message: object, round: int, client: int, weight: float, sum: object) -> None"));
  m.def("checked_policy", &checked_policy, nb::arg("codec"), nb::arg("error_feedback"));
}

}  // namespace kpd::python
