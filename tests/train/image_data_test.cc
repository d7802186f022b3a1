// tests: image data sets by the names of their files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "kpd/base/error.h"
#include "toy_images.h"

namespace kpd::train {
namespace {

class ImageDataFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("kpd_image_data_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::vector<uint32_t>& shape, const std::vector<uint8_t>& data) {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.put(0).put(0).put(8).put(static_cast<char>(shape.size()));
    for (const uint32_t n : shape) {
      for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(n >> shift));
    }
    file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  }
  void write_set(const std::string& images, const std::string& labels, uint32_t count, uint64_t seed) {
    const ImageSet set = toy_images(count, 10, seed);
    write(images, {count, 28, 28}, set.pixels);
    write(labels, {count}, set.labels);
  }
  void write_mnist() {
    write_set("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 1);
    write_set("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 20, 2);
  }
  std::string error(ErrorCode expected) {
    try {
      load_image_data(folder_.string());
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), expected) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(ImageDataFiles, ReadsMnistNames) {
  write_mnist();
  const ImageData data = load_image_data(folder_.string());
  EXPECT_EQ(data.train.pixels, toy_images(30, 10, 1).pixels);
  EXPECT_EQ(data.test.labels, toy_images(20, 10, 2).labels);
  EXPECT_EQ(data.train.height, 28u);
  EXPECT_EQ(data.classes(), 10u);
}

TEST_F(ImageDataFiles, ReadsEmnistNames) {
  write_set("emnist-byclass-train-images-idx3-ubyte", "emnist-byclass-train-labels-idx1-ubyte", 30, 1);
  write_set("emnist-byclass-test-images-idx3-ubyte", "emnist-byclass-test-labels-idx1-ubyte", 20, 2);
  EXPECT_EQ(load_image_data(folder_.string()).test.labels.size(), 20u);
}

TEST_F(ImageDataFiles, ReadsNamesWithDots) {
  write_set("train-images.idx3-ubyte", "train-labels.idx1-ubyte", 30, 1);
  write_set("t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte", 20, 2);
  EXPECT_EQ(load_image_data(folder_.string()).train.labels.size(), 30u);
}

TEST_F(ImageDataFiles, NamesTheMissingFile) {
  write_mnist();
  std::filesystem::remove(folder_ / "t10k-labels-idx1-ubyte");
  EXPECT_NE(error(ErrorCode::kIo).find("t10k-labels-idx1-ubyte"), std::string::npos);
  std::filesystem::remove_all(folder_);
  EXPECT_NE(error(ErrorCode::kIo).find(folder_.string()), std::string::npos);
}

TEST_F(ImageDataFiles, RefusesToChooseBetweenTwoSets) {
  write_mnist();
  write_set("emnist-letters-train-images-idx3-ubyte", "emnist-letters-train-labels-idx1-ubyte", 30, 1);
  EXPECT_NE(error(ErrorCode::kIo).find("more than one set"), std::string::npos);
}

TEST_F(ImageDataFiles, RefusesWhatDoesNotFitTogether) {
  write_mnist();
  write("train-labels-idx1-ubyte", {29}, std::vector<uint8_t>(29));
  EXPECT_NE(error(ErrorCode::kCorruptData).find("29 labels for the 30 images"), std::string::npos);
  write_mnist();
  write("t10k-images-idx3-ubyte", {20, 14, 14}, std::vector<uint8_t>(20 * 14 * 14));
  EXPECT_NE(error(ErrorCode::kCorruptData).find("28x28"), std::string::npos);
  write_mnist();
  write("train-images-idx3-ubyte", {30}, std::vector<uint8_t>(30));
  error(ErrorCode::kCorruptData);
  write_mnist();
  write("train-labels-idx1-ubyte", {}, {0});
  EXPECT_NE(error(ErrorCode::kCorruptData), "");
}

}  // namespace
}  // namespace kpd::train
