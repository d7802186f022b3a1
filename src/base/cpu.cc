// base: choice of the instruction set, on top of Highway's dynamic dispatch. "scalar" is our own reference path, not a Highway
// target: a kernel's wrapper asks use_scalar_kernels() first and calls Highway's dispatch otherwise.
#include "kpd/base/cpu.h"

#include "base/targets.h"  // must come before Highway's headers

#include <hwy/targets.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "kpd/base/ascii.h"
#include "kpd/base/error.h"

namespace kpd {
namespace {

enum Choice : int { kUndecided = 0, kHighway = 1, kScalar = 2 };

std::atomic<int> g_choice{kUndecided};
int64_t g_target = 0;  // of Highway; meaningful if g_choice is kHighway
std::mutex g_mutex;    // guards changes of both

// Best first: a lower bit is a better target. base/targets.h makes HWY_TARGETS the same here and in every kernel. Targets
// without vectors are left out, kernels use our scalar reference there. Asked once, before any is forced, because forcing
// changes Highway's answer.
const std::vector<int64_t>& targets() {
  static const std::vector<int64_t> list = [] {
    std::vector<int64_t> found = hwy::SupportedAndGeneratedTargets();
    std::erase_if(found, [](int64_t target) { return target == HWY_SCALAR || target == HWY_EMU128; });
    return found;
  }();
  return list;
}

void choose(const std::string& name, const char* source) {
  if (name == "scalar") {
    g_choice.store(kScalar, std::memory_order_release);
    return;
  }
  for (const int64_t target : targets()) {
    if (ascii_lower(hwy::TargetName(target)) != name) continue;
    hwy::SetSupportedTargetsForTest(target);
    // Dispatch tables index by this mask, which is otherwise updated only by the very first dispatched call.
    hwy::GetChosenTarget().Update(target);
    g_target = target;
    g_choice.store(kHighway, std::memory_order_release);
    return;
  }
  std::string valid;
  for (const std::string& isa : available_isas()) valid += str(valid.empty() ? "" : ", ", isa);
  fail(ErrorCode::kUnsupported, source, " '", name, "': no such instruction set on this machine, expected one of ", valid);
}

int decide() {
  const std::lock_guard lock(g_mutex);
  if (g_choice.load(std::memory_order_acquire) == kUndecided) {
    const char* wanted = std::getenv("KPD_ISA");
    if (wanted != nullptr && *wanted != '\0') {
      choose(wanted, "KPD_ISA");
    } else {
      choose(available_isas().front(), "instruction set");
    }
  }
  return g_choice.load(std::memory_order_acquire);
}

int choice() {
  const int c = g_choice.load(std::memory_order_acquire);
  return c != kUndecided ? c : decide();
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const int64_t target : targets()) names.push_back(ascii_lower(hwy::TargetName(target)));
  names.push_back("scalar");
  return names;
}

std::string active_isa() {
  if (choice() == kScalar) return "scalar";
  const std::lock_guard lock(g_mutex);
  return ascii_lower(hwy::TargetName(g_target));
}

void set_isa(const std::string& name) {
  const std::lock_guard lock(g_mutex);
  choose(name, "instruction set");
}

bool use_scalar_kernels() { return choice() == kScalar; }

}  // namespace kpd
