// io: what stands before the data of a GGUF file. Private.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kpd/io/model_writer.h"

namespace kpd::io {

// With the padding behind it. Throws Error(kInvalidArgument) for names or shapes that the format cannot hold.
std::vector<uint8_t> gguf_header(const GgufMetadata& metadata, std::span<const GgufTensor> tensors);
// Of its data, without padding.
uint64_t gguf_tensor_bytes(const GgufTensor& tensor);

}  // namespace kpd::io
