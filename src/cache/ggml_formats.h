// cache: keys and values in ggml's blocks of 32 along the head, a token a row, as llama.cpp's --cache-type-k and -v have them
// (q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl), turned by a Hadamard transform before that where it is asked for (llama.cpp, 2026-04:
// so that no channel stands out). Private.
#pragma once

#include "cache/format.h"
#include "kpd/base/block_type.h"
#include "kpd/base/spec.h"

namespace kpd::cache {

// Widths of a head that may be turned are its multiples.
inline constexpr size_t kTurnedWidth = 64;

// Nothing is ever sealed. `turn`: the length of the transforms a row is cut into, a power of two that divides the width; 0:
// none. Throws Error(kUnsupported) where the width is no multiple of the type's block.
std::unique_ptr<KeyFormat> ggml_keys(BlockType type, size_t width, size_t turn);
std::unique_ptr<ValueFormat> ggml_values(BlockType type, size_t width, size_t turn);

// One type for keys and values, its name in lower case as the method: rotate=auto.
LayerFormats ggml_formats_of(const Spec& spec, const Layer& layer);
// ggml:k=TYPE,v=TYPE,rotate=auto|none|hadamard. auto: of each side by itself, if its type is quantized and its width a multiple
// of 64; keys by the largest power of two that divides the width, values by 64. hadamard: also plain floats; other widths are
// an error.
LayerFormats ggml_formats(const Spec& spec, const Layer& layer);
inline constexpr std::string_view kGgmlKeys[] = {"k", "v", "rotate"};

}  // namespace kpd::cache
