// train: the Shakespeare network on libtorch; see include/kpd/train/char_lstm.h.
#include "kpd/train/char_lstm.h"

#include <algorithm>
#include <cmath>

#include "kpd/base/error.h"
#include "kpd/base/crc32.h"
#include "train/torch_tools.h"

namespace kpd::train {
namespace {

using at::Tensor;

constexpr int64_t kEmbedding = 8;
constexpr int64_t kHidden = 256;
constexpr int64_t kTestBatch = 64;

gradient::Manifest make_manifest() {
  const auto tensor = [](const char* name, std::vector<uint64_t> shape) {
    return gradient::TensorInfo{name, DType::kFloat32, std::move(shape)};
  };
  return {tensor("embedding", {kSymbols, kEmbedding}),
          tensor("lstm1.input", {4 * kHidden, kEmbedding}),
          tensor("lstm1.recurrent", {4 * kHidden, kHidden}),
          tensor("lstm1.bias", {4 * kHidden}),
          tensor("lstm2.input", {4 * kHidden, kHidden}),
          tensor("lstm2.recurrent", {4 * kHidden, kHidden}),
          tensor("lstm2.bias", {4 * kHidden}),
          tensor("dense.weight", {kSymbols, kHidden}),
          tensor("dense.bias", {kSymbols})};
}

class CharLstmWorker final : public Worker {
 public:
  CharLstmWorker(const TextData& data, const gradient::Manifest& manifest)
      : data_(data), model_(manifest), no_bias_(at::zeros({4 * kHidden})) {}

  std::span<float> parameters() override { return model_.flat(); }

  double step(std::span<const uint32_t> batch, float rate, CounterRng&) override {
    use_one_torch_thread();
    std::vector<const uint8_t*> rows;
    for (const uint32_t example : batch) rows.push_back(data_.train.data() + uint64_t{example} * (kSequence + 1));
    const auto [inputs, targets] = load(rows);
    const Tensor loss = at::cross_entropy_loss(scores(inputs), targets, {}, at::Reduction::Mean, kPad);
    return model_.descend(loss, rate);
  }

  TestSum evaluate(uint64_t first, uint64_t count) override {
    use_one_torch_thread();
    const at::NoGradGuard no_grad;
    TestSum sum;
    for (uint64_t done = 0; done < count; done += kTestBatch) {
      std::vector<const uint8_t*> rows;
      for (uint64_t i = done; i < std::min<uint64_t>(count, done + kTestBatch); ++i) {
        rows.push_back(data_.test.data() + (first + i) * (kSequence + 1));
      }
      const auto [inputs, targets] = load(rows);
      const Tensor predicted = scores(inputs), real = targets.ne(kPad);
      sum.examples += static_cast<uint64_t>(real.sum().item<int64_t>());
      sum.correct += static_cast<uint64_t>(predicted.argmax(1).eq(targets).logical_and(real).sum().item<int64_t>());
      sum.loss += at::cross_entropy_loss(predicted, targets, {}, at::Reduction::Sum, kPad).item<double>();
    }
    return sum;
  }

 private:
  // Inputs [n, kSequence] and targets [n * kSequence].
  static std::pair<Tensor, Tensor> load(const std::vector<const uint8_t*>& rows) {
    const auto n = static_cast<int64_t>(rows.size());
    Tensor inputs = at::empty({n, kSequence}, at::kLong), targets = at::empty({n * kSequence}, at::kLong);
    int64_t* in = inputs.data_ptr<int64_t>();
    int64_t* out = targets.data_ptr<int64_t>();
    for (const uint8_t* row : rows) {
      for (uint32_t i = 0; i < kSequence; ++i) {
        *in++ = row[i];
        *out++ = row[i + 1];
      }
    }
    return {inputs, targets};
  }

  // [n * kSequence, kSymbols]
  Tensor scores(const Tensor& inputs) const {
    const std::vector<Tensor>& t = model_.tensors();
    const Tensor zero = at::zeros({2, inputs.size(0), kHidden});
    const std::vector<Tensor> weights = {t[1], t[2], t[3], no_bias_, t[4], t[5], t[6], no_bias_};
    const Tensor out = std::get<0>(at::lstm(at::embedding(t[0], inputs), {zero, zero}, weights, /*has_biases=*/true,
                                            /*num_layers=*/2, /*dropout=*/0.0, /*train=*/false, /*bidirectional=*/false,
                                            /*batch_first=*/true));
    return at::linear(out.reshape({-1, kHidden}), t[7], t[8]);
  }

  const TextData& data_;
  TorchModel model_;
  const Tensor no_bias_;  // torch's LSTM has two biases, the paper's network one
};

void fill_uniform(std::span<float> values, double bound, CounterRng& random) {
  for (float& v : values) v = static_cast<float>((2 * random.next_double() - 1) * bound);
}

// [4 * kHidden, kHidden] with orthonormal columns, by Gram and Schmidt, each vector twice.
void fill_orthogonal(std::span<float> values, CounterRng& random) {
  constexpr size_t kRows = 4 * kHidden, kColumns = kHidden;
  std::vector<std::vector<double>> columns;
  for (size_t c = 0; c < kColumns; ++c) {
    std::vector<double> v(kRows);
    for (double& x : v) x = random.next_normal();
    for (int pass = 0; pass < 2; ++pass) {
      for (const std::vector<double>& u : columns) {
        double dot = 0;
        for (size_t i = 0; i < kRows; ++i) dot += u[i] * v[i];
        for (size_t i = 0; i < kRows; ++i) v[i] -= dot * u[i];
      }
    }
    double norm2 = 0;
    for (const double x : v) norm2 += x * x;
    for (double& x : v) x /= std::sqrt(norm2);
    columns.push_back(std::move(v));
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t c = 0; c < kColumns; ++c) values[r * kColumns + c] = static_cast<float>(columns[c][r]);
  }
}

class CharLstm final : public Task {
 public:
  CharLstm(std::string name, TextData data) : name_(std::move(name)), data_(std::move(data)), manifest_(make_manifest()) {
    labels_.assign(data_.train_examples(), 0);
    data_hash_ = (data_.clients.size() << 32) ^ crc32(data_.test, crc32(data_.train));
  }

  const std::string& name() const override { return name_; }
  const gradient::Manifest& manifest() const override { return manifest_; }
  std::span<const uint8_t> train_labels() const override { return labels_; }
  uint32_t classes() const override { return 1; }
  std::span<const std::vector<uint32_t>> own_clients() const override { return data_.clients; }
  uint64_t test_examples() const override { return data_.test_examples(); }
  uint64_t data_hash() const override { return data_hash_; }
  std::unique_ptr<Worker> make_worker() const override { return std::make_unique<CharLstmWorker>(data_, manifest_); }
  std::vector<std::pair<std::string, std::string>> environment() const override { return torch_environment(); }

  void initialise(uint64_t seed, std::span<float> model) const override {
    size_t offset = 0;
    for (size_t t = 0; t < manifest_.size(); ++t) {
      const gradient::TensorInfo& info = manifest_[t];
      const auto values = model.subspan(offset, info.count());
      offset += values.size();
      CounterRng random(seed, t);
      if (info.name == "embedding") {
        fill_uniform(values, .05, random);
      } else if (info.name.ends_with("recurrent")) {
        fill_orthogonal(values, random);
      } else if (info.shape.size() == 2) {
        fill_uniform(values, std::sqrt(6.0 / static_cast<double>(info.shape[0] + info.shape[1])), random);
      } else {
        std::fill(values.begin(), values.end(), 0.0f);
        // torch's gates stand in the order input, forget, cell, output.
        if (info.name.starts_with("lstm")) std::fill_n(values.begin() + kHidden, kHidden, 1.0f);
      }
    }
  }

 private:
  std::string name_;
  TextData data_;
  gradient::Manifest manifest_;
  std::vector<uint8_t> labels_;
  uint64_t data_hash_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_char_lstm(std::string name, TextData data) {
  if (data.train.empty() || data.test.empty())
    fail(ErrorCode::kInvalidArgument, "the text has no training or no test examples");
  return std::make_unique<CharLstm>(std::move(name), std::move(data));
}

}  // namespace kpd::train
