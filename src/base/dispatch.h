// base: which of a kernel's compiled forms runs. Private; without Highway's headers, so that callers of kernels need none.
//
// An operation has a form for every Highway target and may have *variants* of a target, which use instructions that the target
// lacks. It stands in
//   OP.h          KPD_KERNEL(op, R(Args...));   the contract: declares op, which is called like a function, and scalar::op
//   OP_scalar.cc  scalar::op                    the readable truth
//   OP.cc         HWY_NAMESPACE::op             for every target;   under HWY_ONCE: KPD_DISPATCH(op);   (base/targets.h)
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>

namespace kpd {

enum class IsaTarget : uint8_t { kNone, kScalar, kSse4, kAvx2, kAvx3, kNeon };

// What a processor may have beside a target. kVnni: products of four 8-bit pairs, summed (AVX512-VNNI; on AVX2 AVX-VNNI).
inline constexpr uint32_t kVnni = 1, kVbmi = 2, kGfni = 4;

// An instruction set that KPD_ISA can name: a target and what is allowed beside it.
struct Isa {
  const char* name;
  IsaTarget target;
  uint32_t features;
};

// Best first.
inline constexpr Isa kIsas[] = {
    {"avx3+vnni+vbmi+gfni", IsaTarget::kAvx3, kVnni | kVbmi | kGfni},
    {"avx3+vnni", IsaTarget::kAvx3, kVnni},
    {"avx3", IsaTarget::kAvx3, 0},
    {"avx2+vnni", IsaTarget::kAvx2, kVnni},
    {"avx2", IsaTarget::kAvx2, 0},
    {"sse4", IsaTarget::kSse4, 0},
    {"neon", IsaTarget::kNeon, 0},
    {"scalar", IsaTarget::kScalar, 0},
};

// Into kIsas; below 0 until the first kernel runs.
extern std::atomic<int> g_isa;
int decide_isa();

inline size_t isa_index() {
  const int i = g_isa.load(std::memory_order_acquire);
  return static_cast<size_t>(i >= 0 ? i : decide_isa());
}

template <class Function>
struct KernelForm {
  IsaTarget target;
  uint32_t features;  // needed beside the target
  Function* function;
};

template <class Function>
class Kernel;

// Called like a function. What runs follows from the instruction set in use: the first form, best first, of its target that
// needs no more than it allows, the scalar one where there is none.
template <class R, class... Args>
class Kernel<R(Args...)> {
 public:
  using Function = R(Args...);

  constexpr Kernel(Function* scalar, std::initializer_list<KernelForm<Function>> forms) {
    for (size_t i = 0; i < std::size(kIsas); ++i) {
      by_isa_[i] = scalar;
      for (const KernelForm<Function>& form : forms) {
        if (form.target != kIsas[i].target || (form.features & ~kIsas[i].features) != 0) continue;
        by_isa_[i] = form.function;
        break;
      }
    }
  }

  R operator()(Args... args) const { return by_isa_[isa_index()](static_cast<Args&&>(args)...); }

 private:
  std::array<Function*, std::size(kIsas)> by_isa_{};
};

}  // namespace kpd

// Declares an operation of the signature that follows its name; at the level of the namespace that holds the targets'.
#define KPD_KERNEL(name, ...)             \
  namespace scalar {                      \
  std::type_identity_t<__VA_ARGS__> name; \
  }                                       \
  extern const ::kpd::Kernel<__VA_ARGS__> name
