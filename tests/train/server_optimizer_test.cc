// tests: the server's optimizers, by their formulas.
#include "train/server_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kpd::train {
namespace {

TEST(ServerStep, SgdWithoutMomentumAddsTheDifference) {
  FederateOptions options;
  options.server = Server::kSgd;
  options.server_lr = 1;
  std::vector<float> model = {1, -2};
  ServerState state;
  server_step(options, std::vector<float>{0.5f, 0.25f}, model, state);
  EXPECT_EQ(model, (std::vector<float>{1.5f, -1.75f}));
  EXPECT_TRUE(state.first.empty());
}

TEST(ServerStep, SgdMomentumAccumulates) {
  FederateOptions options;
  options.server = Server::kSgd;
  options.server_lr = 0.5;
  options.server_momentum = 0.5;
  std::vector<float> model = {0};
  ServerState state;
  for (int i = 0; i < 3; ++i) server_step(options, std::vector<float>{1}, model, state);
  // m: 1, 1.5, 1.75
  EXPECT_FLOAT_EQ(state.first[0], 1.75f);
  EXPECT_FLOAT_EQ(model[0], 0.5f * (1 + 1.5f + 1.75f));
}

TEST(ServerStep, AdamFollowsTheFormula) {
  FederateOptions options;
  options.server_lr = 0.1;
  options.server_beta1 = 0.9;
  options.server_beta2 = 0.99;
  options.server_eps = 1e-3;
  const std::vector<float> inputs = {0.3f, -0.2f, 0.05f, 0.6f};
  std::vector<float> model = {1};
  ServerState state;
  double m = 0, v = 0, x = 1;
  for (size_t t = 1; t <= inputs.size(); ++t) {
    server_step(options, std::span(inputs).subspan(t - 1, 1), model, state);
    m = 0.9 * m + 0.1 * inputs[t - 1];
    v = 0.99 * v + 0.01 * inputs[t - 1] * inputs[t - 1];
    x += 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-3);
    EXPECT_NEAR(model[0], x, 1e-5) << t;
  }
  EXPECT_EQ(state.steps, inputs.size());
}

TEST(ServerStep, AdamsFirstStepHasTheSizeOfTheRate) {
  FederateOptions options;
  options.server_eps = 1e-12;
  std::vector<float> model = {0, 0};
  ServerState state;
  server_step(options, std::vector<float>{1e-3f, -5}, model, state);
  EXPECT_NEAR(model[0], options.server_lr, 1e-6);
  EXPECT_NEAR(model[1], -options.server_lr, 1e-6);
}

}  // namespace
}  // namespace kpd::train
