// fuzz: model.safetensors.index.json. Whatever is accepted names plain files and each tensor once.
#include <set>
#include <string>

#include "io/safetensors_index.h"
#include "kpd/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    std::set<std::string> tensors;
    for (const auto& [tensor, shard] : kpd::io::parse_safetensors_index({data, size}, "input.json", {})) {
      if (!tensors.insert(tensor).second) __builtin_trap();
      if (shard.empty() || shard.size() > 255 || shard == ".." || shard.find('/') != std::string::npos) __builtin_trap();
      if (shard.find('\0') != std::string::npos) __builtin_trap();
    }
  } catch (const kpd::Error&) {
  }
  return 0;
}
