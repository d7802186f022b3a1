// tests: the choice of an instruction set: by the machine, by KPD_ISA, by name.
#include "kpd/base/cpu.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/expect_error.h"

namespace kpd {
namespace {

// Runs fn in a fresh process image's state: the choice is made once a process, so each case needs its own.
template <class Fn>
int exit_code_of(const Fn& fn) {
  const pid_t child = fork();
  if (child == 0) _exit(fn());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// First in the file: the parent must not have chosen yet.
TEST(Cpu, EnvironmentNamesTheTargetOnce) {
  for (const std::string& isa : available_isas()) {
    EXPECT_EQ(exit_code_of([&] {
                setenv("KPD_ISA", isa.c_str(), 1);
                if (active_isa() != isa) return 1;
                setenv("KPD_ISA", "nonsense", 1);  // read before, so without effect
                return active_isa() == isa ? 0 : 2;
              }),
              0)
        << isa;
  }
}

TEST(Cpu, AWrongNameInTheEnvironmentIsAnErrorThatListsTheValidOnes) {
  EXPECT_EQ(exit_code_of([] {
              setenv("KPD_ISA", "avx9", 1);
              for (int i = 0; i < 2; ++i) {  // it stays an error
                try {
                  (void)active_isa();
                  return 1;
                } catch (const Error& e) {
                  const std::string text = e.what();
                  if (e.code() != ErrorCode::kUnsupported || text.find("KPD_ISA 'avx9'") == std::string::npos) return 2;
                  for (const std::string& isa : available_isas()) {
                    if (text.find(isa) == std::string::npos) return 3;
                  }
                }
              }
              return 0;
            }),
            0);
}

TEST(Cpu, NamesAreUniqueBestFirstAndEndInScalar) {
  const auto isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.back(), "scalar");
  EXPECT_EQ(std::set<std::string>(isas.begin(), isas.end()).size(), isas.size());
  const auto place = [&](const char* name) { return std::find(isas.begin(), isas.end(), name) - isas.begin(); };
  if (place("avx2") != static_cast<long>(isas.size())) {
    EXPECT_LT(place("avx2"), place("sse4"));
  }
}

TEST(Cpu, EveryTargetCanBeForcedInAnyOrder) {
  const auto isas = available_isas();
  for (int pass = 0; pass < 2; ++pass) {
    for (const std::string& isa : isas) {
      set_isa(isa);
      EXPECT_EQ(active_isa(), isa);
      EXPECT_EQ(available_isas(), isas) << "forcing one hides none";
    }
  }
  set_isa(isas.front());
}

TEST(Cpu, WhatRunsHereIsOfWhatIsBuiltInItsOrder) {
  std::vector<std::string> built = built_isas();
  EXPECT_EQ(built.back(), "scalar");
  const auto isas = available_isas();
  std::erase_if(built, [&](const std::string& isa) { return std::find(isas.begin(), isas.end(), isa) == isas.end(); });
  EXPECT_EQ(built, isas);
}

// A variant comes before what it is a variant of, which runs wherever the variant does.
TEST(Cpu, AVariantStandsBeforeItsTarget) {
  const auto isas = available_isas();
  for (auto isa = isas.begin(); isa != isas.end(); ++isa) {
    const std::string target = isa->substr(0, isa->find('+'));
    EXPECT_NE(std::find(isa, isas.end(), target), isas.end()) << *isa;
  }
}

TEST(Cpu, AVariantOfAnotherMachineIsAnErrorThatListsTheValidOnes) {
  const auto isas = available_isas();
  for (const std::string& isa : built_isas()) {
    if (std::find(isas.begin(), isas.end(), isa) != isas.end()) continue;
    EXPECT_KPD_ERROR(kUnsupported, "'" + isa + "': no such instruction set on this machine, expected one of " + isas.front(),
                     set_isa(isa));
  }
  EXPECT_KPD_ERROR(kUnsupported, "'avx3+': no such instruction set", set_isa("avx3+"));
  EXPECT_KPD_ERROR(kUnsupported, "'+vnni': no such instruction set", set_isa("+vnni"));
}

TEST(Cpu, AWrongNameChangesNothing) {
  set_isa("scalar");
  EXPECT_KPD_ERROR(kUnsupported, "'AVX2': no such instruction set on this machine, expected one of", set_isa("AVX2"));
  EXPECT_KPD_ERROR(kUnsupported, "scalar", set_isa(""));
  EXPECT_EQ(active_isa(), "scalar");
  set_isa(available_isas().front());
}

}  // namespace
}  // namespace kpd
