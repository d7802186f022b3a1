// tests: the spec grammar: keys and values, where an error is said to be, the nearest name.
#include "kpd/base/spec.h"

#include <gtest/gtest.h>

#include <array>

#include "base/expect_error.h"

namespace kpd {
namespace {

constexpr std::array<std::string_view, 4> kKeys = {"bits", "block", "code", "scale"};

TEST(Spec, MethodAlone) {
  const Spec spec = Spec::parse("hadamard-sq");
  EXPECT_EQ(spec.method(), "hadamard-sq");
  EXPECT_EQ(spec.text(), "hadamard-sq");
  EXPECT_TRUE(spec.items().empty());
  EXPECT_EQ(Spec::parse("drive+").method(), "drive+");
  EXPECT_EQ(Spec::parse("2_4").method(), "2_4");
}

TEST(Spec, KeysAndValues) {
  const Spec spec = Spec::parse("eden:bits=.05,code=entropy,note=a b:C/;é");
  ASSERT_EQ(spec.items().size(), 3u);
  EXPECT_EQ(spec.items()[0].key, "bits");
  EXPECT_EQ(spec.items()[0].value, ".05");
  EXPECT_EQ(spec.items()[0].position, 11u);
  EXPECT_EQ(spec.items()[1].position, 20u);
  EXPECT_EQ(spec.items()[2].value, "a b:C/;é");
  EXPECT_TRUE(spec.has("code"));
  EXPECT_FALSE(spec.has("cod"));
}

TEST(Spec, MalformedTextNamesThePosition) {
  EXPECT_KPD_ERROR(kInvalidArgument, "character 1: expected a method", Spec::parse(""));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 1: expected a method", Spec::parse(":bits=1"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 1: expected a method", Spec::parse("+eden"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 1: expected a method", Spec::parse("Eden"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 5: expected ':' or the end", Spec::parse("eden bits=1"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 6: expected a key", Spec::parse("eden:"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 6: expected a key", Spec::parse("eden:=1"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 13: expected a key", Spec::parse("eden:bits=1,"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 13: expected a key", Spec::parse("eden:bits=1,,block=2"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 10: expected '=' after key 'bits'", Spec::parse("eden:bits"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 11: expected a value for key 'bits'", Spec::parse("eden:bits="));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 12: expected ','", Spec::parse("eden:bits=1=2"));
  EXPECT_KPD_ERROR(kInvalidArgument, "character 13: key 'bits' is given twice", Spec::parse("eden:bits=1,bits=2"));
}

TEST(Spec, ABareNumberIsNotAccepted) {
  EXPECT_KPD_ERROR(kInvalidArgument, "character 6: expected key=value, for example bits=4", Spec::parse("eden:4"));
}

TEST(Spec, ErrorsStayOnOneLineAndLengthIsBounded) {
  EXPECT_KPD_ERROR(kInvalidArgument, "spec 'a?b'", Spec::parse("a\nb"));
  EXPECT_KPD_ERROR(kInvalidArgument, "expected at most 1024", Spec::parse(std::string(1025, 'a')));
  EXPECT_EQ(Spec::parse(std::string(1024, 'a')).method().size(), 1024u);
}

TEST(Spec, UnknownKeyNamesPositionAndNearest) {
  EXPECT_KPD_ERROR(kInvalidArgument, "character 13: unknown key 'blok'; did you mean 'block'?",
                   Spec::parse("eden:bits=1,blok=4096").check_keys(kKeys));
  EXPECT_KPD_ERROR(kInvalidArgument, "(eden takes bits, block, code, scale)", Spec::parse("eden:zzzzzz=1").check_keys(kKeys));
  EXPECT_KPD_ERROR(kInvalidArgument, "(float32 takes no keys)", Spec::parse("float32:bits=1").check_keys({}));
  EXPECT_NO_THROW(Spec::parse("eden:bits=1,scale=norm").check_keys(kKeys));
}

TEST(Spec, Numbers) {
  EXPECT_EQ(Spec::parse("m").number("bits", 2.5, 0, 8), 2.5);
  EXPECT_EQ(Spec::parse("m:bits=.05").number("bits", 1, .05, 8), .05);
  EXPECT_EQ(Spec::parse("m:bits=8").number("bits", 1, .05, 8), 8);
  EXPECT_EQ(Spec::parse("m:bits=1e-1").number("bits", 1, .05, 8), .1);
  for (const char* bad : {"9", "-1", "nan", "inf", "1x", "0x1", "1e999", " 1", "1 ", "+1", "--1", "1.5.2", ".04"}) {
    EXPECT_KPD_ERROR(kInvalidArgument, std::string("character 8: bits=") + bad + ", expected a number from 0.05 to 8",
                     Spec::parse(std::string("m:bits=") + bad).number("bits", 1, .05, 8));
  }
}

TEST(Spec, Integers) {
  EXPECT_EQ(Spec::parse("m").integer("block", 4096, 64, 65536), 4096);
  EXPECT_EQ(Spec::parse("m:block=-3").integer("block", 0, -5, 5), -3);
  for (const char* bad : {"1.5", "63", "65537", "99999999999999999999", "4k", "0x80"}) {
    EXPECT_KPD_ERROR(kInvalidArgument, "expected an integer from 64 to 65536",
                     Spec::parse(std::string("m:block=") + bad).integer("block", 64, 64, 65536));
  }
}

TEST(Spec, Choices) {
  constexpr std::array<std::string_view, 3> scales = {"unbiased", "biased", "norm"};
  EXPECT_EQ(Spec::parse("m").choice("scale", 1, scales), 1u);
  EXPECT_EQ(Spec::parse("m:scale=norm").choice("scale", 1, scales), 2u);
  EXPECT_KPD_ERROR(kInvalidArgument,
                   "character 9: scale=unbaised, expected one of unbiased, biased, norm; did you mean 'unbiased'?",
                   Spec::parse("m:scale=unbaised").choice("scale", 0, scales));
}

TEST(NearestWord, TyposOnly) {
  EXPECT_EQ(nearest_word("bts", kKeys), "bits");
  EXPECT_EQ(nearest_word("bist", kKeys), "bits");
  EXPECT_EQ(nearest_word("scales", kKeys), "scale");
  EXPECT_EQ(nearest_word("", kKeys), "");
  EXPECT_EQ(nearest_word("frobnicate", kKeys), "");
  EXPECT_EQ(nearest_word("bits", kKeys), "bits");
  EXPECT_EQ(nearest_word("bits", {}), "");
  EXPECT_EQ(nearest_word(std::string(100000, 'b'), kKeys), "");
}

}  // namespace
}  // namespace kpd
