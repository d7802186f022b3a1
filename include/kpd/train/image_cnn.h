// train: the EMNIST network of EDEN's experiments on images in IDX form (Fashion-MNIST, MNIST, EMNIST).
//
// Two 3x3 convolutions of 32 and 64 channels with ReLU, 2x2 max-pool, dropout .25, 128 units with ReLU, dropout .5, one output
// a class: 1,206,590 parameters at 62 classes, 1,199,882 at 10. Weights are drawn by Glorot and Bengio's uniform rule, biases
// are 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kpd/train/task.h"

namespace kpd::train {

struct ImageSet {
  uint32_t height = 0, width = 0;
  std::vector<uint8_t> pixels;  // [images, height, width]
  std::vector<uint8_t> labels;  // [images]
};

struct ImageData {
  ImageSet train, test;
  uint32_t classes() const;  // highest label + 1
};

// Where Debian's package dataset-fashion-mnist puts its files.
inline constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

// Reads the four IDX files (also .gz) of `folder`: [PREFIX-]train-images-idx3-ubyte, [PREFIX-]train-labels-idx1-ubyte and the
// same with t10k or test, as MNIST, Fashion-MNIST and EMNIST (emnist-byclass-train-images-idx3-ubyte) name them. Throws
// Error(kIo) where a file is missing (the text says which, and for kFashionMnistFolder how to install it) or two sets lie in
// one folder; Error(kCorruptData) where they do not fit together.
ImageData load_image_data(const std::string& folder);

// Images must be 28x28, every label < classes; 0 = data.classes(). Throws Error(kInvalidArgument). While a worker runs,
// libtorch's threads are set to one: parallelism comes from several workers, which makes results independent of the number of
// threads.
std::unique_ptr<Task> make_image_cnn(std::string name, ImageData data, uint32_t classes = 0);

}  // namespace kpd::train
