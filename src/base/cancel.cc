// base: see kpd/base/cancel.h.
#include "kpd/base/cancel.h"

#include <utility>

#include "kpd/base/error.h"

namespace kpd {
namespace {

thread_local const CancelScope* t_innermost = nullptr;

}  // namespace

CancelScope::CancelScope(std::function<bool()> cancelled) : cancelled_(std::move(cancelled)), outer_(t_innermost) {
  t_innermost = this;
}
CancelScope::~CancelScope() { t_innermost = outer_; }

void check_cancelled() {
  if (t_innermost == nullptr || !t_innermost->cancelled_ || !t_innermost->cancelled_()) return;
  fail(ErrorCode::kCancelled, "cancelled");
}

}  // namespace kpd
