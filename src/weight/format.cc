// weight: the table of formats. A new one is a Matrix in a file of its own and a row here.
#include "kpd/weight/format.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "kpd/base/block_type.h"
#include "kpd/base/error.h"
#include "weight/formats.h"

namespace kpd::weight {
namespace {

const std::vector<Format>& table() {
  static const std::vector<Format> rows = {integer_format(), float_format(), stored_format()};
  return rows;
}

// Those beside the table.
std::mutex g_mutex;
std::vector<Format>& registered() {
  static std::vector<Format> rows;
  return rows;
}

Format find(const Spec& spec) {
  for (const Format& row : table()) {
    if (row.name == spec.method()) return row;
  }
  {
    const std::lock_guard lock(g_mutex);
    for (const Format& row : registered()) {
      if (row.name == spec.method()) return row;
    }
  }
  std::vector<std::string_view> names;
  for (const Format& row : table()) names.push_back(row.name);
  const std::string_view near = nearest_word(spec.method(), names);
  spec.fail_at(1, near.empty() ? str("unknown weight format '", spec.method(), "'")
                               : str("unknown weight format '", spec.method(), "', did you mean '", near, "'?"));
}

}  // namespace

const char* arithmetic_name(Arithmetic arithmetic) { return arithmetic == Arithmetic::kExact ? "exact" : "fast"; }

std::span<const Format> formats() { return table(); }

std::string_view usual_format(const MatrixSource& source, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::kFast) {
    for (const Format& row : table()) {
      if (row.accepts(source)) return row.name;
    }
  }
  return "stored";
}

std::unique_ptr<Matrix> make_matrix(std::string_view spec_text, const MatrixSource& source, int n_threads) {
  const Spec spec = Spec::parse(spec_text);
  const Format row = find(spec);
  spec.check_keys(row.keys);
  source.check();
  if (!row.accepts(source)) {
    fail(ErrorCode::kUnsupported, source.weight().name, ": the weight format ", row.name, " does not store rows of ",
         source.n_in, " values of the type ", block_type_info(source.weight().type).name);
  }
  return row.make(spec, source, n_threads);
}

RegisteredFormat::RegisteredFormat(Format format) : name_(format.name) {
  const std::lock_guard lock(g_mutex);
  registered().push_back(std::move(format));
}

RegisteredFormat::~RegisteredFormat() {
  const std::lock_guard lock(g_mutex);
  std::erase_if(registered(), [&](const Format& row) { return row.name == name_; });
}

}  // namespace kpd::weight
