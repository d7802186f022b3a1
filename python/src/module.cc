// python: the extension module kpd._kpd.
#include "bind.h"

#include "kpd/base/version.h"

NB_MODULE(_kpd, m) {
  m.attr("__version__") = kpd::kVersion;
  kpd::python::bind_errors();
  kpd::python::bind_gradient(m);
  kpd::python::bind_torch_messages(m);
}
