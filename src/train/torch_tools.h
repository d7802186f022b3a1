// train: what the tasks on libtorch share. Private; includes torch.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

// Not <torch/torch.h>, which takes twice as long to compile.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "kpd/gradient/message.h"

namespace kpd::train {

// One thread a worker: parallelism comes from several workers, and a sum split over threads would depend on their number.
inline void use_one_torch_thread() {
  if (at::get_num_threads() != 1) at::set_num_threads(1);
}

// The parameters of a manifest in one piece of memory and as tensors with gradients.
class TorchModel {
 public:
  explicit TorchModel(const gradient::Manifest& manifest);
  std::span<float> flat() { return {flat_.data_ptr<float>(), static_cast<size_t>(flat_.numel())}; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // parameters -= rate * gradient of the loss; returns the loss.
  double descend(const at::Tensor& loss, float rate);

 private:
  at::Tensor flat_;
  std::vector<at::Tensor> tensors_;  // views of flat_
};

// Machine type and versions, for Task::environment().
std::vector<std::pair<std::string, std::string>> torch_environment();

}  // namespace kpd::train
