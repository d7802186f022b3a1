// llm: whether two descriptions are of one network, however their files store it. Private.
#pragma once

#include <string>

#include "kpd/llm/model_description.h"

namespace kpd::llm {

// What differs first, for an error ("the window of layer 3"); empty if nothing that the forward pass computes with does. What
// belongs to the files is not compared: names, fused matrices, the order of rows, biases and heads, which are tensors.
std::string network_difference(const ModelDescription& a, const ModelDescription& b);

// Whether the two rotate alike, in every context, to the last bit.
bool same_rotation(const RopeDescription& a, const RopeDescription& b, size_t max_context);

}  // namespace kpd::llm
