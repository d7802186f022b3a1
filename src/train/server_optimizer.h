// train: the server's step (FedOpt, Reddi et al., ICLR 2021, algorithm 1) on flat vectors. Torch-free; IEEE + - * / sqrt in
// float only, element by element.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kpd/train/federate.h"

namespace kpd::train {

// Moments of the optimizer; empty until the first step.
struct ServerState {
  uint64_t steps = 0;
  std::vector<float> first;   // momentum (sgd) or mean (adam)
  std::vector<float> second;  // mean square (adam)
};

// Applies the average difference: sgd: m = momentum m + d, x += lr m (no m is kept at momentum 0).
// adam: m = b1 m + (1 - b1) d, v = b2 v + (1 - b2) d^2, x += lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
// difference, model: [n].
void server_step(const FederateOptions& options, std::span<const float> difference, std::span<float> model, ServerState& state);

}  // namespace kpd::train
