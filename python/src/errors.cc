// python: errors of the library as kpd.Error.
#include "bind.h"

#include "kpd/base/error.h"

namespace nb = nanobind;

namespace kpd::python {
namespace {

void raise(const Error& error) {
  nb::object offset = nb::none();
  if (error.offset()) offset = nb::int_(*error.offset());
  nb::object type = nb::module_::import_("kpd._errors").attr("Error");
  nb::object made = type(error.what(), error_code_name(error.code()), offset);
  PyErr_SetObject(type.ptr(), made.ptr());
}

}  // namespace

void bind_errors() {
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void*) {
        try {
          std::rethrow_exception(p);
        } catch (const Error& error) {
          raise(error);
        }
      },
      nullptr);
}

}  // namespace kpd::python
