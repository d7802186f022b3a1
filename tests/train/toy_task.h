// tests: a federated task without libtorch: softmax regression on noisy class centres.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kpd/train/federate.h"
#include "kpd/train/task.h"

namespace kpd::train {

inline constexpr uint32_t kToyClasses = 4;
inline constexpr uint32_t kToyFeatures = 64;

class ToyTask final : public Task {
 public:
  explicit ToyTask(uint64_t train_examples = 800) {
    manifest_ = {{"weight", DType::kFloat32, {kToyClasses, kToyFeatures}}, {"bias", DType::kFloat32, {kToyClasses}}};
    CounterRng random(1, 2);
    std::vector<float> centres(kToyClasses * kToyFeatures);
    for (float& v : centres) v = static_cast<float>(random.next_normal());
    for (uint64_t i = 0; i < train_examples + 400; ++i) {
      const auto label = static_cast<uint8_t>(i % kToyClasses);
      labels_.push_back(label);
      for (uint32_t f = 0; f < kToyFeatures; ++f) {
        features_.push_back(centres[label * kToyFeatures + f] + 2 * static_cast<float>(random.next_normal()));
      }
    }
    train_ = train_examples;
  }

  const std::string& name() const override { return name_; }
  const gradient::Manifest& manifest() const override { return manifest_; }
  std::span<const uint8_t> train_labels() const override { return std::span(labels_).first(train_); }
  uint32_t classes() const override { return kToyClasses; }
  uint64_t test_examples() const override { return labels_.size() - train_; }
  uint64_t data_hash() const override { return 7 + train_; }
  void initialise(uint64_t seed, std::span<float> model) const override {
    CounterRng random(seed);
    for (float& v : model) v = static_cast<float>(0.01 * random.next_normal());
  }
  std::vector<std::pair<std::string, std::string>> environment() const override { return {{"machine", machine}}; }
  std::unique_ptr<Worker> make_worker() const override;

  std::string machine = "toy";
  int64_t diverges_on = -1;  // step() writes NaN when it meets this training example

 private:
  friend class ToyWorker;
  std::string name_ = "toy";
  gradient::Manifest manifest_;
  std::vector<float> features_;
  std::vector<uint8_t> labels_;
  uint64_t train_ = 0;
};

class ToyWorker final : public Worker {
 public:
  explicit ToyWorker(const ToyTask& task) : task_(task), model_((kToyFeatures + 1) * kToyClasses) {}
  std::span<float> parameters() override { return model_; }

  double step(std::span<const uint32_t> batch, float rate, CounterRng& random) override {
    std::vector<float> gradient(model_.size());
    double loss = 0;
    for (const uint32_t example : batch) {
      if (static_cast<int64_t>(example) == task_.diverges_on) model_[0] = NAN;
      const bool dropped = random.next_below(10) == 0;  // "dropout": leaves an example out
      float p[kToyClasses];
      loss += scores(example, p);
      if (dropped) continue;
      for (uint32_t k = 0; k < kToyClasses; ++k) {
        const float d = p[k] - (task_.labels_[example] == k ? 1.0f : 0.0f);
        for (uint32_t f = 0; f < kToyFeatures; ++f)
          gradient[k * kToyFeatures + f] += d * task_.features_[example * kToyFeatures + f];
        gradient[kToyClasses * kToyFeatures + k] += d;
      }
    }
    const float scale = rate / static_cast<float>(batch.size());
    for (size_t i = 0; i < model_.size(); ++i) model_[i] -= scale * gradient[i];
    return loss / static_cast<double>(batch.size());
  }

  TestSum evaluate(uint64_t first, uint64_t count) override {
    TestSum sum;
    for (uint64_t i = first; i < first + count; ++i) {
      float p[kToyClasses];
      sum.loss += scores(task_.train_ + i, p);
      sum.correct += std::max_element(p, p + kToyClasses) - p == task_.labels_[task_.train_ + i] ? 1 : 0;
      ++sum.examples;
    }
    return sum;
  }

 private:
  // Probabilities; returns the loss.
  double scores(uint64_t example, float* p) const {
    float total = 0;
    for (uint32_t k = 0; k < kToyClasses; ++k) {
      p[k] = model_[kToyClasses * kToyFeatures + k];
      for (uint32_t f = 0; f < kToyFeatures; ++f)
        p[k] += model_[k * kToyFeatures + f] * task_.features_[example * kToyFeatures + f];
    }
    const float top = *std::max_element(p, p + kToyClasses);
    for (uint32_t k = 0; k < kToyClasses; ++k) total += p[k] = std::exp(p[k] - top);
    for (uint32_t k = 0; k < kToyClasses; ++k) p[k] /= total;
    return -std::log(p[task_.labels_[example]] + 1e-30);
  }

  const ToyTask& task_;
  std::vector<float> model_;
};

inline FederateOptions toy_options() {
  FederateOptions options;
  options.codecs = {"float32"};
  options.rounds = 12;
  options.clients = 20;
  options.examples_per_client = 40;
  options.clients_per_round = 5;
  options.batch = 10;
  options.client_lr = 0.05;
  options.server_lr = 0.03;
  options.eval_every = 4;
  options.seed = 3;
  return options;
}

inline std::unique_ptr<Worker> ToyTask::make_worker() const { return std::make_unique<ToyWorker>(*this); }

}  // namespace kpd::train
