// train: the server's step; see server_optimizer.h.
#include "train/server_optimizer.h"

#include <cmath>

namespace kpd::train {
namespace {

void sgd_step(const FederateOptions& options, std::span<const float> difference, std::span<float> model, ServerState& state) {
  const auto rate = static_cast<float>(options.server_lr);
  const auto momentum = static_cast<float>(options.server_momentum);
  if (momentum == 0) {
    for (size_t i = 0; i < model.size(); ++i) model[i] += rate * difference[i];
    return;
  }
  state.first.resize(model.size());
  for (size_t i = 0; i < model.size(); ++i) {
    state.first[i] = momentum * state.first[i] + difference[i];
    model[i] += rate * state.first[i];
  }
}

// 1 - beta^steps by multiplication, as pow() differs between C libraries.
double bias_correction(double beta, uint64_t steps) {
  double power = 1;
  for (uint64_t i = 0; i < steps && power > 1e-18; ++i) power *= beta;
  return 1 - power;
}

void adam_step(const FederateOptions& options, std::span<const float> difference, std::span<float> model, ServerState& state) {
  state.first.resize(model.size());
  state.second.resize(model.size());
  const auto b1 = static_cast<float>(options.server_beta1), b2 = static_cast<float>(options.server_beta2);
  const auto c1 = static_cast<float>(1 - options.server_beta1), c2 = static_cast<float>(1 - options.server_beta2);
  const auto rate = static_cast<float>(options.server_lr / bias_correction(options.server_beta1, state.steps));
  const auto scale = static_cast<float>(1 / bias_correction(options.server_beta2, state.steps));
  const auto eps = static_cast<float>(options.server_eps);
  for (size_t i = 0; i < model.size(); ++i) {
    const float d = difference[i];
    const float m = b1 * state.first[i] + c1 * d;
    const float v = b2 * state.second[i] + c2 * (d * d);
    state.first[i] = m;
    state.second[i] = v;
    model[i] += rate * m / (std::sqrt(v * scale) + eps);
  }
}

}  // namespace

void server_step(const FederateOptions& options, std::span<const float> difference, std::span<float> model,
                 ServerState& state) {
  ++state.steps;
  if (options.server == Server::kSgd) {
    sgd_step(options, difference, model, state);
  } else {
    adam_step(options, difference, model, state);
  }
}

}  // namespace kpd::train
