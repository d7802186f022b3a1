// weight: the table of formats: how the values of a matrix lie in memory and which product reads them. A format is named by a
// spec (kpd/base/spec.h), FORMAT[:key=value,...].
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kpd/base/spec.h"
#include "kpd/weight/matrix.h"
#include "kpd/weight/source.h"

namespace kpd::weight {

// exact: float activations times dequantized weights. fast: activations rounded to 8 bits and integer products where the
// stored type has them.
enum class Arithmetic { kExact, kFast };
const char* arithmetic_name(Arithmetic arithmetic);  // "exact", "fast"

// One row of the table.
struct Format {
  std::string_view name;               // unique
  std::string_view summary;            // one line for `--help`
  std::vector<std::string_view> keys;  // of its spec; no other is accepted
  // Whether it stores this matrix; the source was checked.
  bool (*accepts)(const MatrixSource& source);
  // On n_threads. Throws through spec.fail_at for a value it does not take, Error(kCorruptData) for what is stored wrong.
  std::unique_ptr<Matrix> (*make)(const Spec& spec, const MatrixSource& source, int n_threads);
};

// In the order in which fast arithmetic tries them.
std::span<const Format> formats();

// The name of the format for an arithmetic: "stored" for exact, the first of the table that accepts it for fast.
std::string_view usual_format(const MatrixSource& source, Arithmetic arithmetic);

// Throws Error(kInvalidArgument) for a spec that no row knows, Error(kUnsupported) if the format does not store such a matrix,
// Error(kCorruptData) as MatrixSource::check().
std::unique_ptr<Matrix> make_matrix(std::string_view spec, const MatrixSource& source, int n_threads);

}  // namespace kpd::weight
