// tests: runs a statement that must throw kpd::Error with the given code and a text that holds `part`.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kpd/base/error.h"

namespace kpd::testing {

template <class Fn>
void expect_error(ErrorCode code, const std::string& part, const Fn& fn, const char* file, int line) {
  const ::testing::ScopedTrace trace(file, line, "expect_error");
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(error_code_name(e.code()), std::string(error_code_name(code))) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << "text: " << e.what() << "\nexpected part: " << part;
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "more than one line: " << e.what();
    return;
  }
  ADD_FAILURE() << "no error thrown, expected " << error_code_name(code) << " with '" << part << "'";
}

}  // namespace kpd::testing

#define EXPECT_KPD_ERROR(code, part, ...) \
  ::kpd::testing::expect_error(           \
      ::kpd::ErrorCode::code, part, [&] { __VA_ARGS__; }, __FILE__, __LINE__)
