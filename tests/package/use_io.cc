// package: a foreign program that uses kpd::io.
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

#include <kpd/io/tensors.h>

int main() {
  const std::vector<float> values = {1.0f, -2.5f, 0.0f, 3.25f, 1e-3f, 7.0f};
  kpd::io::TensorEntry tensor;
  tensor.shape = {2, 3};
  tensor.data = values.data();
  tensor.count = values.size();
  const std::string path = (std::filesystem::temp_directory_path() / "kpd_package_test.npy").string();
  kpd::io::save_tensors(path, std::span(&tensor, 1));
  std::vector<float> back(values.size());
  {
    const kpd::io::TensorFile file = kpd::io::load_tensors(path);
    if (file.tensors.size() != 1 || file.tensors[0].shape != tensor.shape) return 1;
    kpd::load_floats(file.tensors[0].view(), 0, back);
  }
  std::filesystem::remove(path);
  std::printf("read back %zu values\n", back.size());
  return back == values ? 0 : 1;
}
