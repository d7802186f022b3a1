// weight: the rows of the table of formats, and formats beside it. Private.
#pragma once

#include <string_view>

#include "kpd/weight/format.h"

namespace kpd::weight {

Format integer_format();  // blocks with an integer product, laid out for it
Format float_format();    // F32, F16 and BF16, laid out for the float product
Format stored_format();   // any type: stored bytes, dequantized tile by tile whenever they are read

// A format that make_matrix() knows for as long as this lives; formats() does not list it. For tests. Thread-safe.
class RegisteredFormat {
 public:
  explicit RegisteredFormat(Format format);
  ~RegisteredFormat();
  RegisteredFormat(const RegisteredFormat&) = delete;
  RegisteredFormat& operator=(const RegisteredFormat&) = delete;

 private:
  std::string_view name_;
};

}  // namespace kpd::weight
