// llm: a description as the files of another program say it: config.json of transformers, the keys of GGUF as llama.cpp reads
// them. Both are read again before anything is written: what does not come back is refused. Private.
#pragma once

#include <string>
#include <vector>

#include "kpd/io/gguf.h"
#include "kpd/llm/model_description.h"
#include "llm/families.h"
#include "io/json.h"

namespace kpd::llm {

// Numbers of 32 bits as their shortest decimal: 0.2, not 0.200000003.
double short_decimal(float value);

// What a checkpoint of a network is written as: its class in transformers.
const Family& written_family(const ModelDescription& d);

// config.json for the network `d`, without the keys of tokens and types.
io::Json write_config(const ModelDescription& d);

// A tensor that a GGUF file has because of its configuration.
struct FactorTensor {
  std::string name;
  std::vector<float> values;
};

struct GgufNetwork {
  const char* architecture = "";
  std::vector<std::pair<std::string, io::GgufValue>> keys;
  std::vector<FactorTensor> factors;
};
// Throws Error(kUnsupported), its text opening with `file`, for what no key says.
GgufNetwork write_gguf_network(const ModelDescription& d, std::string_view file);

}  // namespace kpd::llm
