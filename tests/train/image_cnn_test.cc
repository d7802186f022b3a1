// tests: the network for images: its parameters, its gradient, its determinism.
#include "kpd/train/image_cnn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <thread>

#include <unistd.h>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "kpd/train/federate.h"
#include "toy_images.h"

namespace kpd::train {
namespace {

ImageData toy_data(uint32_t train = 80, uint32_t test = 40, uint32_t classes = 10) {
  return {toy_images(train, classes, 1), toy_images(test, classes, 2)};
}

std::vector<uint32_t> first_examples(uint32_t n) {
  std::vector<uint32_t> batch(n);
  std::iota(batch.begin(), batch.end(), 0u);
  return batch;
}

uint64_t parameters(const Task& task) {
  uint64_t sum = 0;
  for (const auto& info : task.manifest()) sum += info.count();
  return sum;
}

TEST(ImageCnn, HasThePapersNumberOfParameters) {
  const auto emnist = make_image_cnn("emnist", toy_data(), 62);
  EXPECT_EQ(parameters(*emnist), 1206590u);
  EXPECT_EQ(emnist->make_worker()->parameters().size(), 1206590u);
  const auto fashion = make_image_cnn("fashion-cnn", toy_data());
  EXPECT_EQ(parameters(*fashion), 1199882u);
  EXPECT_EQ(fashion->make_worker()->parameters().size(), 1199882u);
  EXPECT_EQ(fashion->classes(), 10u);
}

TEST(ImageCnn, InitialModelComesFromTheSeed) {
  const auto task = make_image_cnn("t", toy_data());
  std::vector<float> a(1199882), b(a), c(a);
  task->initialise(1, a);
  task->initialise(1, b);
  task->initialise(2, c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  const float bound = std::sqrt(6.0f / (9 * (32 + 64)));
  double sum2 = 0;
  for (size_t i = 320; i < 320 + 18432; ++i) {
    ASSERT_LE(std::fabs(a[i]), bound);
    sum2 += static_cast<double>(a[i]) * a[i];
  }
  EXPECT_NEAR(sum2 / 18432, bound * bound / 3, 0.03 * bound * bound / 3);
  EXPECT_EQ(a[319], 0);  // the first layer's bias
  EXPECT_EQ(a.back(), 0);
}

// The loss falls along the step as the gradient says, with the same dropout masks.
TEST(ImageCnn, StepFollowsTheGradientOfTheLoss) {
  const auto task = make_image_cnn("t", toy_data());
  const auto worker = task->make_worker();
  const auto batch = first_examples(8);
  std::vector<float> start(worker->parameters().size());
  task->initialise(3, start);
  const auto loss_at = [&](std::span<const float> model, float rate) {
    std::copy(model.begin(), model.end(), worker->parameters().begin());
    CounterRng random(5);
    return worker->step(batch, rate, random);
  };
  loss_at(start, 1.0f);
  std::vector<float> gradient(start.size());
  double norm2 = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    gradient[i] = start[i] - worker->parameters()[i];
    norm2 += static_cast<double>(gradient[i]) * gradient[i];
  }
  const auto moved = [&](float by) {
    std::vector<float> model(start);
    for (size_t i = 0; i < model.size(); ++i) model[i] += by * gradient[i];
    return loss_at(model, 0);
  };
  constexpr float kStep = 2e-3f;
  const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
  EXPECT_NEAR(slope / norm2, 1, 0.05);
}

TEST(ImageCnn, LearnsAndTestsInPieces) {
  const auto task = make_image_cnn("t", toy_data());
  const auto worker = task->make_worker();
  task->initialise(1, worker->parameters());
  CounterRng random(2);
  const auto batch = first_examples(20);
  const double before = worker->step(batch, 0.1f, random);
  double after = 0;
  for (int i = 0; i < 9; ++i) after = worker->step(batch, 0.1f, random);
  EXPECT_NEAR(before, std::log(10), 0.5);
  EXPECT_LT(after, 0.9 * before);
  const TestSum whole = worker->evaluate(0, 40), left = worker->evaluate(0, 13), right = worker->evaluate(13, 27);
  EXPECT_EQ(whole.examples, 40u);
  EXPECT_EQ(whole.correct, left.correct + right.correct);
  EXPECT_NEAR(whole.loss, left.loss + right.loss, 1e-4 * whole.loss);
  EXPECT_GT(whole.correct, 8u);
}

TEST(ImageCnn, WorkersInThreadsDoNotInfluenceEachOther) {
  const auto task = make_image_cnn("t", toy_data());
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(task->make_worker());
  const auto work = [&](size_t i) {
    task->initialise(1, workers[i]->parameters());
    CounterRng random(9);
    for (int step = 0; step < 2; ++step) workers[i]->step(first_examples(20), 0.05f, random);
  };
  work(0);
  std::thread first(work, 1), second(work, 2);
  first.join();
  second.join();
  const auto expected = workers[0]->parameters();
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), workers[i]->parameters().begin())) << i;
  }
}

TEST(ImageCnn, TwoRoundsAndTwoMoreEqualFour) {
  const auto task = make_image_cnn("t", toy_data(40, 10));
  FederateOptions options;
  options.codecs = {"eden:bits=1"};
  options.rounds = 4;
  options.clients = 4;
  options.examples_per_client = 10;
  options.clients_per_round = 2;
  options.batch = 10;
  options.eval_every = 4;
  options.seed = 1;
  options.threads = 2;
  const CodecResult straight = federate(*task, options).codecs[0];
  options.checkpoint = ::testing::TempDir() + "kpd_image_cnn_test_" + std::to_string(getpid());
  options.rounds = 2;
  federate(*task, options);
  options.rounds = 4;
  options.resume = true;
  const CodecResult resumed = federate(*task, options).codecs[0];
  std::filesystem::remove(options.checkpoint);
  EXPECT_EQ(straight.model, resumed.model);
  EXPECT_EQ(straight.uplink_bytes, resumed.uplink_bytes);
  // One bit a number, and floats for the two biases that are shorter than a block's worth.
  EXPECT_GT(straight.ratio(), 30);
}

TEST(ImageCnn, RefusesDataThatDoesNotFit) {
  ImageData data = toy_data();
  EXPECT_KPD_ERROR(kInvalidArgument, "with 5 classes", make_image_cnn("t", data, 5));
  data.test.labels.pop_back();
  EXPECT_KPD_ERROR(kInvalidArgument, "the same, non-zero number", make_image_cnn("t", data));
  data = toy_data();
  data.train.height = 14;
  EXPECT_KPD_ERROR(kInvalidArgument, "takes 28x28", make_image_cnn("t", data));
  data = toy_data();
  data.train = {28, 28, {}, {}};
  EXPECT_KPD_ERROR(kInvalidArgument, "the same, non-zero number", make_image_cnn("t", data));
}

}  // namespace
}  // namespace kpd::train
