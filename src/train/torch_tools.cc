// train: what the tasks on libtorch share (torch_tools.h).
#include "train/torch_tools.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include "kpd/base/cpu.h"

namespace kpd::train {

TorchModel::TorchModel(const gradient::Manifest& manifest) {
  uint64_t count = 0;
  for (const auto& info : manifest) count += info.count();
  flat_ = at::zeros({static_cast<int64_t>(count)});
  int64_t offset = 0;
  for (const auto& info : manifest) {
    const auto n = static_cast<int64_t>(info.count());
    const std::vector<int64_t> shape(info.shape.begin(), info.shape.end());
    tensors_.push_back(flat_.narrow(0, offset, n).view(shape).detach().requires_grad_(true));
    offset += n;
  }
}

double TorchModel::descend(const at::Tensor& loss, float rate) {
  const auto gradients = torch::autograd::grad({loss}, tensors_);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients.size(); ++i) tensors_[i].sub_(gradients[i], rate);
  return loss.item<double>();
}

std::vector<std::pair<std::string, std::string>> torch_environment() {
  std::string isas;
  for (const std::string& isa : available_isas()) isas += (isas.empty() ? "" : " ") + isa;
  return {{"machine", isas}, {"torch", TORCH_VERSION}, {"torch-cpu", at::get_cpu_capability()}};
}

}  // namespace kpd::train
