// fuzz: config.json to a model's description. Anything thrown but kpd::Error is a finding, as is a description whose sizes do
// not fit one another.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kpd/base/error.h"
#include "kpd/llm/model_description.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const kpd::llm::ModelDescription d = kpd::llm::describe_config(input, "config.json");
    if (d.layers.empty() || d.ropes.empty()) __builtin_trap();
    for (const auto& layer : d.layers) {
      if (layer.n_heads % layer.n_kv_heads != 0 || layer.source >= d.n_file_layers) __builtin_trap();
    }
    if (d.temperature_scale != 0 && d.temperature_length == 0) __builtin_trap();
    for (const kpd::llm::LayerDescription& layer : d.layers) {
      if (layer.rope >= static_cast<int>(d.ropes.size())) __builtin_trap();
    }
    for (const kpd::llm::RopeDescription& rope : d.ropes) {
      for (const size_t n : {size_t{1}, d.max_context, 4 * d.max_context}) {
        if (kpd::llm::rope_frequencies(rope, n).radians.size() != rope.n_rotated / 2) __builtin_trap();
      }
    }
  } catch (const kpd::Error&) {
  }
  return 0;
}
