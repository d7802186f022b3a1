// gradient: adds the seconds of its life to a sum. Private.
#pragma once

#include "kpd/base/clock.h"

namespace kpd::gradient {

class Stopwatch {
 public:
  explicit Stopwatch(double* sum) : sum_(sum), start_(Clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    if (sum_ != nullptr) *sum_ += seconds_since(start_);
  }

 private:
  double* const sum_;
  const Clock::time_point start_;
};

}  // namespace kpd::gradient
