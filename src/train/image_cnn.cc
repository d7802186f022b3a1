// train: the EMNIST network on libtorch; see include/kpd/train/image_cnn.h.
#include "kpd/train/image_cnn.h"

#include <algorithm>
#include <cmath>

#include "kpd/base/error.h"
#include "kpd/base/crc32.h"
#include "train/torch_tools.h"

namespace kpd::train {
namespace {

using at::Tensor;

constexpr int64_t kSide = 28;
constexpr int64_t kPixels = kSide * kSide;
constexpr int64_t kPooled = 64 * 12 * 12;  // 28 - 2 - 2 = 24, pooled by 2
constexpr int64_t kTestBatch = 100;
// Dropout by one random byte an element: p = dropped / 256, exact for the two rates of this network.
constexpr uint32_t kDropPooled = 64;   // .25
constexpr uint32_t kDropHidden = 128;  // .5

gradient::Manifest make_manifest(uint64_t classes) {
  const auto tensor = [](const char* name, std::vector<uint64_t> shape) {
    return gradient::TensorInfo{name, DType::kFloat32, std::move(shape)};
  };
  return {tensor("conv1.weight", {32, 1, 3, 3}),
          tensor("conv1.bias", {32}),
          tensor("conv2.weight", {64, 32, 3, 3}),
          tensor("conv2.bias", {64}),
          tensor("dense1.weight", {128, static_cast<uint64_t>(kPooled)}),
          tensor("dense1.bias", {128}),
          tensor("dense2.weight", {classes, 128}),
          tensor("dense2.bias", {classes})};
}

// 0 where a random byte is below `dropped`, else 256 / (256 - dropped).
void fill_dropout(Tensor& mask, uint32_t dropped, CounterRng& random) {
  float* dst = mask.data_ptr<float>();
  const int64_t n = mask.numel();
  const float keep = 256.0f / static_cast<float>(256 - dropped);
  uint32_t word = 0;
  for (int64_t i = 0; i < n; ++i) {
    word = i % 4 == 0 ? random.next_u32() : word >> 8;
    dst[i] = (word & 255u) < dropped ? 0.0f : keep;
  }
}

class ImageCnnWorker final : public Worker {
 public:
  ImageCnnWorker(const ImageData& data, const gradient::Manifest& manifest) : data_(data), model_(manifest) {}

  std::span<float> parameters() override { return model_.flat(); }

  double step(std::span<const uint32_t> batch, float rate, CounterRng& random) override {
    use_one_torch_thread();
    const auto n = static_cast<int64_t>(batch.size());
    const Tensor images = make_images(n);
    const Tensor labels = at::empty({n}, at::kLong);
    for (int64_t i = 0; i < n; ++i) load(data_.train, batch[static_cast<size_t>(i)], i, images, labels);
    Tensor drop_pooled = at::empty({n, kPooled});
    Tensor drop_hidden = at::empty({n, 128});
    fill_dropout(drop_pooled, kDropPooled, random);
    fill_dropout(drop_hidden, kDropHidden, random);

    Tensor hidden = features(images) * drop_pooled;
    hidden = at::relu(at::linear(hidden, tensors_[4], tensors_[5])) * drop_hidden;
    const Tensor loss = at::cross_entropy_loss(at::linear(hidden, tensors_[6], tensors_[7]), labels);
    return model_.descend(loss, rate);
  }

  TestSum evaluate(uint64_t first, uint64_t count) override {
    use_one_torch_thread();
    const at::NoGradGuard no_grad;
    TestSum sum;
    for (uint64_t done = 0; done < count; done += kTestBatch) {
      const auto n = static_cast<int64_t>(std::min<uint64_t>(kTestBatch, count - done));
      const Tensor images = make_images(n);
      const Tensor labels = at::empty({n}, at::kLong);
      for (int64_t i = 0; i < n; ++i) load(data_.test, first + done + static_cast<uint64_t>(i), i, images, labels);
      const Tensor hidden = at::relu(at::linear(features(images), tensors_[4], tensors_[5]));
      const Tensor scores = at::linear(hidden, tensors_[6], tensors_[7]);
      sum.examples += static_cast<uint64_t>(n);
      sum.correct += static_cast<uint64_t>(scores.argmax(1).eq(labels).sum().item<int64_t>());
      sum.loss += at::cross_entropy_loss(scores, labels).item<double>() * static_cast<double>(n);
    }
    return sum;
  }

 private:
  static void load(const ImageSet& set, uint64_t index, int64_t row, const Tensor& images, const Tensor& labels) {
    float* dst = images.data_ptr<float>() + row * kPixels;
    const uint8_t* src = set.pixels.data() + index * static_cast<uint64_t>(kPixels);
    for (int64_t i = 0; i < kPixels; ++i) dst[i] = static_cast<float>(src[i]) * (1.0f / 255.0f);
    labels.data_ptr<int64_t>()[row] = set.labels[index];
  }

  // Channels last in memory: max_pool2d is 14 times and the second convolution 1.4 times as fast so, and the layers take the
  // format from here.
  static Tensor make_images(int64_t n) {
    return at::empty({n, 1, kSide, kSide}, at::kFloat, std::nullopt, at::kCPU, false, at::MemoryFormat::ChannelsLast);
  }

  // [n, kPooled], in the order row, column, channel. ReLU after the pooling equals ReLU before it and touches a quarter of the
  // values.
  Tensor features(const Tensor& images) const {
    const Tensor first = at::relu(at::conv2d(images, tensors_[0], tensors_[1]));
    const Tensor pooled = at::max_pool2d(at::conv2d(first, tensors_[2], tensors_[3]), 2);
    return at::relu(pooled.permute({0, 2, 3, 1}).flatten(1));
  }

  const ImageData& data_;
  TorchModel model_;
  const std::vector<Tensor>& tensors_ = model_.tensors();
};

class ImageCnn final : public Task {
 public:
  ImageCnn(std::string name, ImageData data, uint32_t classes)
      : name_(std::move(name)), data_(std::move(data)), classes_(classes), manifest_(make_manifest(classes)) {
    uint32_t crc = 0;
    for (const ImageSet* set : {&data_.train, &data_.test}) {
      crc = crc32(set->labels, crc32(set->pixels, crc));
    }
    data_hash_ = (data_.train.labels.size() << 32) ^ crc;
  }

  const std::string& name() const override { return name_; }
  const gradient::Manifest& manifest() const override { return manifest_; }
  std::span<const uint8_t> train_labels() const override { return data_.train.labels; }
  uint32_t classes() const override { return classes_; }
  uint64_t test_examples() const override { return data_.test.labels.size(); }
  uint64_t data_hash() const override { return data_hash_; }
  std::unique_ptr<Worker> make_worker() const override { return std::make_unique<ImageCnnWorker>(data_, manifest_); }

  void initialise(uint64_t seed, std::span<float> model) const override {
    size_t offset = 0;
    for (size_t t = 0; t < manifest_.size(); ++t) {
      const auto& shape = manifest_[t].shape;
      const auto values = model.subspan(offset, manifest_[t].count());
      offset += values.size();
      if (shape.size() == 1) {  // a bias
        std::fill(values.begin(), values.end(), 0.0f);
        continue;
      }
      const uint64_t area = shape.size() == 4 ? shape[2] * shape[3] : 1;
      const double bound = std::sqrt(6.0 / static_cast<double>((shape[0] + shape[1]) * area));
      CounterRng random(seed, t);
      for (float& v : values) v = static_cast<float>((2 * random.next_double() - 1) * bound);
    }
  }

  std::vector<std::pair<std::string, std::string>> environment() const override { return torch_environment(); }

 private:
  std::string name_;
  ImageData data_;
  uint32_t classes_;
  gradient::Manifest manifest_;
  uint64_t data_hash_ = 0;
};

void check_set(const ImageSet& set, const char* what, uint32_t classes) {
  if (set.height != kSide || set.width != kSide) {
    fail(ErrorCode::kInvalidArgument, what, " images are ", set.height, "x", set.width, ", this network takes 28x28");
  }
  if (set.labels.empty() || set.pixels.size() != set.labels.size() * static_cast<size_t>(kPixels)) {
    fail(ErrorCode::kInvalidArgument, what, " images and labels do not have the same, non-zero number");
  }
  const uint32_t highest = *std::max_element(set.labels.begin(), set.labels.end());
  if (highest >= classes) fail(ErrorCode::kInvalidArgument, what, " label ", highest, " with ", classes, " classes");
}

}  // namespace

std::unique_ptr<Task> make_image_cnn(std::string name, ImageData data, uint32_t classes) {
  if (classes == 0) classes = data.classes();
  check_set(data.train, "training", classes);
  check_set(data.test, "test", classes);
  return std::make_unique<ImageCnn>(std::move(name), std::move(data), classes);
}

}  // namespace kpd::train
