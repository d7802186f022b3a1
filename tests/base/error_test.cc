// tests: the one exception type: its code, its text, numbers in texts.
#include "kpd/base/error.h"

#include <gtest/gtest.h>

#include <clocale>

#include "base/expect_error.h"

namespace kpd {
namespace {

TEST(Error, CarriesCodeAndText) {
  try {
    fail(ErrorCode::kMismatch, "file ", std::string("a.kpd"), ": byte ", uint64_t{1} << 40, ": ", -3, ' ', true, " ", 0.05);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMismatch);
    EXPECT_STREQ(e.what(), "file a.kpd: byte 1099511627776: -3 true 0.05");
  }
}

TEST(Error, NumbersAreAbi) {
  EXPECT_EQ(static_cast<int>(ErrorCode::kInvalidArgument), 1);
  EXPECT_EQ(static_cast<int>(ErrorCode::kCorruptData), 2);
  EXPECT_EQ(static_cast<int>(ErrorCode::kUnsupported), 3);
  EXPECT_EQ(static_cast<int>(ErrorCode::kLimitExceeded), 4);
  EXPECT_EQ(static_cast<int>(ErrorCode::kIo), 5);
  EXPECT_EQ(static_cast<int>(ErrorCode::kMismatch), 6);
  EXPECT_EQ(static_cast<int>(ErrorCode::kCancelled), 7);
  EXPECT_EQ(static_cast<int>(ErrorCode::kInternal), 8);
  EXPECT_EQ(static_cast<int>(ErrorCode::kOutOfMemory), 9);
  EXPECT_STREQ(error_code_name(ErrorCode::kCorruptData), "corrupt_data");
  EXPECT_STREQ(error_code_name(static_cast<ErrorCode>(77)), "unknown");
}

TEST(Error, NumbersIgnoreTheLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // absent on many machines; then the test says less
  EXPECT_EQ(str(1.5, " ", 0.25f, " ", uint8_t{7}), "1.5 0.25 7");
  std::setlocale(LC_ALL, before.c_str());
}

TEST(Error, FailAtNamesThePlace) {
  EXPECT_KPD_ERROR(kLimitExceeded, "a.npy: byte 12: 3 dimensions, at most 2",
                   fail_at(ErrorCode::kLimitExceeded, "a.npy", 12, 3, " dimensions, at most ", 2));
}

}  // namespace
}  // namespace kpd
