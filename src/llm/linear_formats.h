// llm: the weight formats behind make_matrix. Private.
#pragma once

#include <memory>
#include <span>

#include "kpd/llm/linear.h"

namespace kpd::llm {

struct LinearFormat {
  const char* name;
  bool (*accepts)(const WeightSource& source);
  std::unique_ptr<WeightMatrix> (*make)(const WeightSource& source, int n_threads);
};

// Those of fast arithmetic, the first that accepts is taken.
std::span<const LinearFormat> linear_formats();

// Any type: the stored bytes are dequantized tile by tile and multiplied in float. Reads the source's rows whenever it is used.
std::unique_ptr<WeightMatrix> make_exact_matrix(const WeightSource& source);

}  // namespace kpd::llm
