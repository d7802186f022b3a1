// python: see arrays.h. DLPack's structures are those of its version 1 (dlpack.h), as far as they are read here.
#include "arrays.h"

#include <algorithm>
#include <cstring>

namespace nb = nanobind;

namespace kpd::python {
namespace {

struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t n_dims;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;  // strides in elements, null: contiguous
  uint64_t byte_offset;
};
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};
constexpr int32_t kDlCpu = 1;

std::optional<DType> dlpack_dtype(const DlTensor& t) {
  enum : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6, kE4M3 = 10, kE5M2 = 12 };
  if (t.lanes != 1) return {};
  const int log2 = t.bits == 8 ? 0 : t.bits == 16 ? 1 : t.bits == 32 ? 2 : t.bits == 64 ? 3 : -1;
  if (log2 < 0) return {};
  constexpr DType kInts[] = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
  constexpr DType kUInts[] = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
  constexpr DType kFloats[] = {DType::kFloat16, DType::kFloat32, DType::kFloat64};
  if (t.code == kInt) return kInts[log2];
  if (t.code == kUInt) return kUInts[log2];
  if (t.code == kFloat && log2 > 0) return kFloats[log2 - 1];
  if (t.code == kBfloat && log2 == 1) return DType::kBFloat16;
  if (t.code == kBool && log2 == 0) return DType::kBool;
  if (t.code == kE4M3 && log2 == 0) return DType::kFloat8E4M3;
  if (t.code == kE5M2 && log2 == 0) return DType::kFloat8E5M2;
  return {};
}

// Of a format of the struct module, without its byte order.
std::optional<DType> buffer_dtype(std::string_view format, Py_ssize_t item_bytes) {
  if (format.size() != 1) return {};
  const int log2 = item_bytes == 1 ? 0 : item_bytes == 2 ? 1 : item_bytes == 4 ? 2 : item_bytes == 8 ? 3 : -1;
  if (log2 < 0) return {};
  constexpr DType kInts[] = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
  constexpr DType kUInts[] = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
  constexpr std::string_view kIntCodes = "bhilqn", kUIntCodes = "BHILQN";
  if (kIntCodes.find(format[0]) != std::string_view::npos) return kInts[log2];
  if (kUIntCodes.find(format[0]) != std::string_view::npos) return kUInts[log2];
  if (format[0] == '?') return DType::kBool;
  if (format[0] == 'e') return DType::kFloat16;
  if (format[0] == 'f') return DType::kFloat32;
  if (format[0] == 'd') return DType::kFloat64;
  return {};
}

constexpr const char* kTypes = "expected float32, float16, bfloat16, float64, an integer type or bool";

// str(object).
std::string text_of(nb::handle object) { return nb::str(object).c_str(); }

bool truth(nb::handle object, const char* name) { return nb::cast<bool>(object.attr(name)); }

// What is asked of torch for each tensor, found once: modules live as long as the process.
struct Torch {
  PyTypeObject* tensor;
  nb::handle strided, to_dlpack;
};

// None where torch is not loaded, and so nothing can be a tensor of it.
const Torch* torch_if_loaded() {
  static Torch torch{};
  if (torch.tensor != nullptr) return &torch;
  static PyObject* const name = PyUnicode_InternFromString("torch");
  const nb::object module = nb::steal(PyImport_GetModule(name));
  // While another thread still imports it there may be less.
  if (!module.is_valid() || !nb::hasattr(module, "Tensor") || !nb::hasattr(module, "strided")) return nullptr;
  torch.to_dlpack = nb::object(nb::module_::import_("torch.utils.dlpack").attr("to_dlpack")).release();
  torch.strided = nb::object(module.attr("strided")).release();
  torch.tensor = reinterpret_cast<PyTypeObject*>(nb::object(module.attr("Tensor")).release().ptr());
  return &torch;
}

void check_tensor(nb::handle t, const Torch& torch, const Place& place) {
  if (truth(t, "requires_grad")) refuse(place, "requires grad; expected x.detach()");
  if (!nb::object(t.attr("layout")).is(torch.strided))
    refuse(place, "has layout ", text_of(nb::object(t.attr("layout"))), "; expected a dense tensor, x.to_dense()");
  if (!truth(t, "is_cpu"))
    refuse(place, "is on device ", text_of(nb::object(t.attr("device"))), "; expected a tensor on the CPU, x.cpu()");
  if (nb::cast<bool>(t.attr("is_conj")())) refuse(place, "is a conjugate view; expected x.resolve_conj()");
  if (nb::cast<bool>(t.attr("is_neg")())) refuse(place, "is a negative view; expected x.resolve_neg()");
}

}  // namespace

std::string Place::text() const {
  if (keyed) return str(argument, "['", key, "']");
  return index < 0 ? std::string(argument) : str(argument, "[", static_cast<long>(index), "]");
}

std::string shape_text(std::span<const uint64_t> shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += str(i > 0 ? ", " : "", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

// Fills in an Array.
struct ArrayReader {
  Array& a;
  const Place& place;

  // strides in units of `unit` bytes; null: contiguous.
  template <class Int>
  void layout(int n_dims, const Int* shape, const Int* strides, int64_t unit) {
    a.count_ = 1;
    for (int i = 0; i < n_dims; ++i) {
      a.shape_.push_back(static_cast<uint64_t>(shape[i]));
      a.count_ *= static_cast<uint64_t>(shape[i]);
    }
    if (strides == nullptr || a.count_ == 0) return;
    auto expected = static_cast<int64_t>(dtype_bytes(a.dtype_));
    for (int i = n_dims - 1; i >= 0; --i) {
      if (shape[i] == 1) continue;
      if (strides[i] < 0) refuse(place, "has negative strides; expected a copy of it, e.g. numpy.ascontiguousarray(x)");
      if (static_cast<int64_t>(strides[i]) * unit != expected) a.contiguous_ = false;
      expected *= shape[i];
    }
    if (a.contiguous_) return;
    for (int i = 0; i < n_dims; ++i) a.strides_.push_back(static_cast<int64_t>(strides[i]) * unit);
  }

  void buffer(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &a.buffer_, flags) != 0) {
      const nb::python_error error;
      refuse(place, error.value().type().is(PyExc_BufferError) || error.value().type().is(PyExc_ValueError)
                        ? text_of(error.value())
                        : std::string(error.what()));
    }
    a.has_buffer_ = true;
    const Py_buffer& b = a.buffer_;
    std::string_view format = b.format == nullptr ? "B" : b.format;
    char order = '@';
    if (!format.empty() && std::string_view("@=<>!").find(format[0]) != std::string_view::npos) {
      order = format[0];
      format.remove_prefix(1);
    }
    if ((order == '>' || order == '!') && b.itemsize > 1)
      refuse(place, "is big-endian; expected elements in the machine's byte order, e.g. x.astype(x.dtype.newbyteorder('='))");
    const std::optional<DType> dtype = buffer_dtype(format, b.itemsize);
    if (!dtype) refuse(place, "has elements of format '", b.format, "'; ", kTypes);
    a.dtype_ = *dtype;
    a.data_ = b.buf;
    a.read_only_ = b.readonly != 0;
    layout(b.ndim, b.shape, b.strides, 1);
  }

  void dlpack(nb::object capsule) {
    auto* managed = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    if (managed == nullptr) {
      PyErr_Clear();
      refuse(place, "has given no DLPack capsule; expected an array of numpy, a CPU tensor of torch, or a buffer");
    }
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    a.managed_ = managed;
    a.drop_ = [](void* p) {
      auto* const m = static_cast<DlManaged*>(p);
      if (m->deleter != nullptr) m->deleter(m);
    };
    const DlTensor& t = managed->tensor;
    if (t.device_type != kDlCpu) refuse(place, "is not on the CPU");
    const std::optional<DType> dtype = dlpack_dtype(t);
    if (!dtype) refuse(place, "has elements that kpd does not have; ", kTypes);
    a.dtype_ = *dtype;
    a.data_ = static_cast<const uint8_t*>(t.data) + t.byte_offset;
    a.read_only_ = false;
    layout(t.n_dims, t.shape, t.strides, static_cast<int64_t>(dtype_bytes(a.dtype_)));
  }

  void any(nb::handle object, int flags) {
    const Torch* const torch = torch_if_loaded();
    if (torch != nullptr && PyType_IsSubtype(Py_TYPE(object.ptr()), torch->tensor) != 0) {
      check_tensor(object, *torch, place);
      try {
        dlpack(torch->to_dlpack(object));
      } catch (const nb::python_error& error) {
        refuse(place, text_of(error.value()));
      }
    } else if (PyObject_CheckBuffer(object.ptr()) != 0) {
      buffer(object, flags);
    } else if (nb::hasattr(object, "__dlpack__")) {
      try {
        dlpack(object.attr("__dlpack__")());
      } catch (const nb::python_error& error) {
        refuse(place, text_of(error.value()));
      }
    } else {
      const std::string text = str(place.text(), ": expected an array of numpy, a CPU tensor of torch, or a buffer, not ",
                                   Py_TYPE(object.ptr())->tp_name);
      throw nb::type_error(text.c_str());
    }
  }

  void take_as(DType as) {
    const bool fits = as == DType::kBFloat16
                          ? a.dtype_ == DType::kUInt16
                          : (as == DType::kFloat8E4M3 || as == DType::kFloat8E5M2) && a.dtype_ == DType::kUInt8;
    if (fits) a.dtype_ = as;
  }
  void check_target() const {
    if (a.read_only_) refuse(place, "is read-only");
    if (!a.contiguous_) refuse(place, "is not contiguous; results are written into contiguous arrays only");
  }
};

Array Array::source(nb::handle object, const Place& place, std::optional<DType> as) {
  Array array;
  ArrayReader reader{array, place};
  reader.any(object, PyBUF_STRIDES | PyBUF_FORMAT);
  if (as) reader.take_as(*as);
  return array;
}

Array Array::target(nb::handle object, const Place& place) {
  Array array;
  ArrayReader reader{array, place};
  reader.any(object, PyBUF_STRIDES | PyBUF_FORMAT);
  reader.check_target();
  return array;
}

void Array::release() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
  if (managed_ != nullptr) drop_(managed_);
  has_buffer_ = false;
  managed_ = nullptr;
}

Array::~Array() { release(); }
Array::Array(Array&& other) noexcept { *this = std::move(other); }
Array& Array::operator=(Array&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = other.data_;
  dtype_ = other.dtype_;
  contiguous_ = other.contiguous_;
  read_only_ = other.read_only_;
  count_ = other.count_;
  shape_ = std::move(other.shape_);
  strides_ = std::move(other.strides_);
  copy_ = std::move(other.copy_);
  has_buffer_ = std::exchange(other.has_buffer_, false);
  buffer_ = other.buffer_;
  managed_ = std::exchange(other.managed_, nullptr);
  drop_ = other.drop_;
  return *this;
}

void Array::gather() {
  if (contiguous_ || copy_) return;
  const size_t item = dtype_bytes(dtype_), n_dims = shape_.size();
  copy_.reset(new uint8_t[count_ * item]);
  // An odometer over all dimensions but the last.
  std::vector<uint64_t> at(n_dims, 0);
  const uint64_t row = shape_[n_dims - 1];
  const int64_t step = strides_[n_dims - 1];
  uint8_t* to = copy_.get();
  for (const uint8_t* from = static_cast<const uint8_t*>(data_);;) {
    for (uint64_t i = 0; i < row; ++i, to += item) std::memcpy(to, from + static_cast<int64_t>(i) * step, item);
    size_t d = n_dims - 1;
    for (;;) {
      if (d == 0) return;
      --d;
      from += strides_[d];
      if (++at[d] < shape_[d]) break;
      from -= static_cast<int64_t>(shape_[d]) * strides_[d];
      at[d] = 0;
    }
  }
}

std::span<const uint8_t> message_bytes(const Array& array, const Place& place) {
  if (array.dtype() != DType::kUInt8 && array.dtype() != DType::kInt8)
    refuse(place, "has elements of ", dtype_name(array.dtype()), "; expected bytes");
  if (!array.contiguous()) refuse(place, "is not contiguous");
  return {static_cast<const uint8_t*>(array.data()), array.count()};
}

std::optional<DType> parse_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "float8_e4m3fn") return DType::kFloat8E4M3;
  for (uint8_t t = 0; t < kDTypes; ++t) {
    if (name == dtype_name(static_cast<DType>(t))) return static_cast<DType>(t);
  }
  return {};
}

gradient::TensorInfo describe(nb::handle object, std::string name, const Place& place) {
  gradient::TensorInfo info{std::move(name), DType::kFloat32, {}};
  if (!nb::hasattr(object, "shape") || !nb::hasattr(object, "dtype")) {
    const Array array = Array::source(object, place);
    info.dtype = array.dtype();
    info.shape = array.shape();
    return info;
  }
  const std::string dtype = text_of(nb::object(object.attr("dtype")));
  const std::optional<DType> known = parse_dtype(dtype);
  if (!known) refuse(place, "has elements of type ", dtype, "; ", kTypes, " in the machine's byte order");
  info.dtype = *known;
  for (const nb::handle d : object.attr("shape")) info.shape.push_back(nb::cast<uint64_t>(d));
  return info;
}

nb::object new_array(std::span<const uint64_t> shape, DType dtype) {
  nb::list sizes;
  for (const uint64_t d : shape) sizes.append(d);
  const char* name = dtype_name(dtype);
  if (dtype == DType::kBFloat16) name = "uint16";
  if (dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2) name = "uint8";
  return nb::module_::import_("numpy").attr("empty")(nb::tuple(sizes), name);
}

void check_apart(std::span<const Array> targets, std::span<const Array> sources, const char* argument) {
  struct Range {
    uintptr_t begin, end;
    Py_ssize_t target;  // -1: a source
  };
  std::vector<Range> ranges;
  const auto add = [&](const Array& a, Py_ssize_t target) {
    const auto begin = reinterpret_cast<uintptr_t>(a.data());
    if (a.bytes() > 0) ranges.push_back({begin, begin + a.bytes(), target});
  };
  for (size_t i = 0; i < targets.size(); ++i) add(targets[i], static_cast<Py_ssize_t>(i));
  for (const Array& a : sources) add(a, -1);
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  const Range* reach = nullptr;         // what ends last of what was seen
  const Range* reach_target = nullptr;  // of the targets
  for (const Range& r : ranges) {
    const Range* const before = r.target >= 0 ? reach : reach_target;
    if (before != nullptr && before->end > r.begin) {
      const Range& target = r.target >= 0 ? r : *before;
      const bool alone = targets.size() == 1;
      refuse({argument, alone ? -1 : target.target}, "overlaps ",
             r.target >= 0 && before->target >= 0 ? "another of the results" : "an input", "; expected memory of its own");
    }
    if (reach == nullptr || r.end > reach->end) reach = &r;
    if (r.target >= 0 && (reach_target == nullptr || r.end > reach_target->end)) reach_target = &r;
  }
}

}  // namespace kpd::python
