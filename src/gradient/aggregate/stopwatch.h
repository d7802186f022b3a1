// gradient: adds the seconds of its life to a sum. Private.
#pragma once

#include <chrono>

namespace kpd::gradient {

class Stopwatch {
 public:
  explicit Stopwatch(double* sum) : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    if (sum_ != nullptr) *sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double* const sum_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace kpd::gradient
