// python: the extension module kpd._kpd.
#include "bind.h"

#include "kpd/base/version.h"

NB_MODULE(_kpd, m) {
  m.doc() = "The compiled part of kpd. Its classes and functions are public in kpd.gradient.";
  m.attr("version") = kpd::kVersion;
  kpd::python::bind_errors();
  kpd::python::bind_gradient_codec(m);
  kpd::python::bind_gradient_encode(m);
  kpd::python::bind_gradient_decode(m);
  kpd::python::bind_gradient_aggregate(m);
  kpd::python::bind_torch_messages(m);
  kpd::python::bind_llm_tokenizer(m);
  kpd::python::bind_llm_model(m);
  kpd::python::bind_llm_stream(m);
}
