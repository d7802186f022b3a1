// tools: what `kpd inspect` shows of a model file or folder.
#pragma once

#include <string>

#include "kpd/io/file.h"

namespace kpd::tool {

// Whether `path` is a model: a folder, a GGUF file or a .safetensors file, by content.
bool looks_like_model(const std::string& path);

// Architecture, sizes, types, tokenizer; with a tensor's name, that tensor's statistics.
int inspect_model(const std::string& path, const std::string& tensor, bool json);

// The same of what came through a pipe, or of a file whose name says nothing: whether it is GGUF or safetensors, and what it
// holds. `name` is shown.
bool holds_weights(const io::MappedFile& file);
int inspect_weights(io::MappedFile file, const std::string& name, const std::string& tensor, bool json);

// Names come from files: control characters must not reach a terminal.
std::string printable(const std::string& name);

}  // namespace kpd::tool
