// python: what the files of the extension share. Each file binds one topic and is named here.
#pragma once

#include <nanobind/nanobind.h>

namespace kpd::python {

// Makes a kpd::Error that leaves a bound function a kpd.Error.
void bind_errors();
void bind_gradient_codec(nanobind::module_& m);
void bind_gradient_encode(nanobind::module_& m);
void bind_gradient_decode(nanobind::module_& m);
void bind_gradient_aggregate(nanobind::module_& m);
void bind_torch_messages(nanobind::module_& m);
void bind_llm_tokenizer(nanobind::module_& m);
void bind_llm_model(nanobind::module_& m);
void bind_llm_stream(nanobind::module_& m);

}  // namespace kpd::python
