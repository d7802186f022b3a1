// llm: the one place that says what of a model's files may stay unread: tensors that are no part of the text model, and keys of
// configurations that change no result. Whatever else the loader does not use is an error. Private.
#pragma once

#include <string_view>

#include "kpd/io/gguf.h"
#include "io/json.h"

namespace kpd::llm {

// A tensor of a Hugging Face checkpoint or a GGUF file, by its whole name.
bool is_harmless_tensor(std::string_view name);
// A key of config.json, by its name within its object. A value that says "not used" (null, false, an empty text, list or
// object) is harmless with any key.
bool is_harmless_config(std::string_view key, const io::Json& value);
// A key of a GGUF file without its architecture ("attention.scale"). Zeros are harmless too: there they mean "not set".
bool is_harmless_gguf(std::string_view key, const io::GgufValue& value);

}  // namespace kpd::llm
