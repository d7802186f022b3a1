// base: choice of the instruction set. Which targets the machine has, Highway says; which processor flags beside them, cpuid.
#include "kpd/base/cpu.h"

#include "base/targets.h"  // must come before Highway's headers

#include <hwy/targets.h>

#include <cstdlib>
#include <mutex>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/dispatch.h"
#include "kpd/base/error.h"

namespace kpd {

std::atomic<int> g_isa{-1};

namespace {

std::mutex g_mutex;  // guards changes of g_isa

int64_t highway_target(IsaTarget target) {
  switch (target) {
    case IsaTarget::kAvx3:
      return HWY_AVX3;
    case IsaTarget::kAvx2:
      return HWY_AVX2;
    case IsaTarget::kSse4:
      return HWY_SSE4;
    case IsaTarget::kNeon:
      return HWY_NEON;
    case IsaTarget::kScalar:
    case IsaTarget::kNone:
      break;
  }
  return 0;
}

// Flags that the variants of a target ask for.
uint32_t processor_features([[maybe_unused]] IsaTarget target) {
  uint32_t features = 0;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return 0;
  const unsigned vbmi = 1u << 1, gfni = 1u << 8, avx512_vnni = 1u << 11;
  if ((c & gfni) != 0) features |= kGfni;
  if (target == IsaTarget::kAvx3) {
    if ((c & vbmi) != 0) features |= kVbmi;
    if ((c & avx512_vnni) != 0) features |= kVnni;
  } else if (target == IsaTarget::kAvx2) {
    const unsigned avx_vnni = 1u << 4;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & avx_vnni) != 0) features |= kVnni;
  }
#endif
  return features;
}

bool is_built(const Isa& isa) {
  if (isa.target == IsaTarget::kScalar) return true;
  return (highway_target(isa.target) & HWY_TARGETS) != 0 && (isa.features == 0 || KPD_VARIANTS_BUILT != 0);
}

// Of this machine.
const std::array<bool, std::size(kIsas)>& runs_here() {
  static const std::array<bool, std::size(kIsas)> runs = [] {
    std::array<bool, std::size(kIsas)> found{};
    const int64_t supported = hwy::SupportedTargets();
    for (size_t i = 0; i < found.size(); ++i) {
      const Isa& isa = kIsas[i];
      found[i] = is_built(isa) && (isa.target == IsaTarget::kScalar || (highway_target(isa.target) & supported) != 0) &&
                 (isa.features & ~processor_features(isa.target)) == 0;
    }
    return found;
  }();
  return runs;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += str(text.empty() ? "" : ", ", name);
  return text;
}

int choose(const std::string& name, const char* source) {
  for (size_t i = 0; i < std::size(kIsas); ++i) {
    if (name != kIsas[i].name || !runs_here()[i]) continue;
    g_isa.store(static_cast<int>(i), std::memory_order_release);
    return static_cast<int>(i);
  }
  fail(ErrorCode::kUnsupported, source, " '", name, "': no such instruction set on this machine, expected one of ",
       joined(available_isas()));
}

}  // namespace

int decide_isa() {
  const std::lock_guard lock(g_mutex);
  if (const int i = g_isa.load(std::memory_order_acquire); i >= 0) return i;
  const char* wanted = std::getenv("KPD_ISA");
  if (wanted != nullptr && *wanted != '\0') return choose(wanted, "KPD_ISA");
  return choose(available_isas().front(), "instruction set");
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kIsas); ++i) {
    if (runs_here()[i]) names.emplace_back(kIsas[i].name);
  }
  return names;
}

std::vector<std::string> built_isas() {
  std::vector<std::string> names;
  for (const Isa& isa : kIsas) {
    if (is_built(isa)) names.emplace_back(isa.name);
  }
  return names;
}

std::string active_isa() { return kIsas[isa_index()].name; }

void set_isa(const std::string& name) {
  const std::lock_guard lock(g_mutex);
  (void)choose(name, "instruction set");
}

}  // namespace kpd
