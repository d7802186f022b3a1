// train: finds and reads the four IDX files of an image set; see include/kpd/train/image_cnn.h. Torch-free.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "kpd/base/error.h"
#include "kpd/io/idx.h"
#include "kpd/train/image_cnn.h"

namespace kpd::train {
namespace {

// "emnist-byclass-" of "emnist-byclass-train-images-idx3-ubyte.gz" if the name ends in `part` ("train-images-idx3-ubyte",
// dashes or dots before idx) with or without .gz.
bool match(std::string_view name, std::string_view part, std::string& prefix) {
  std::string plain(name);
  if (plain.ends_with(".gz")) plain.resize(plain.size() - 3);
  if (const size_t dot = plain.rfind(".idx"); dot != std::string::npos) plain[dot] = '-';
  if (!plain.ends_with(part)) return false;
  prefix = plain.substr(0, plain.size() - part.size());
  return prefix.empty() || prefix.back() == '-';
}

std::vector<std::string> list_folder(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error); !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) {
    const bool debian = folder == kFashionMnistFolder && error == std::errc::no_such_file_or_directory;
    fail(ErrorCode::kIo, folder, ": ", error.message(),
         debian ? "; Fashion-MNIST is a package of Debian: apt-get install dataset-fashion-mnist" : "");
  }
  std::sort(names.begin(), names.end());  // a plain file comes before the same with .gz
  return names;
}

// The path of the file whose name ends in one of `parts`.
std::string find_file(const std::string& folder, const std::vector<std::string>& names,
                      std::span<const std::string_view> parts) {
  std::set<std::string> prefixes;
  std::string found, prefix;
  for (const std::string_view part : parts) {
    for (const std::string& name : names) {
      if (!match(name, part, prefix)) continue;
      prefixes.insert(prefix);
      if (found.empty()) found = name;
    }
  }
  if (prefixes.size() > 1) {
    std::string list;
    for (const std::string& p : prefixes) list += (list.empty() ? "" : ", ") + p + std::string(parts[0]);
    fail(ErrorCode::kIo, folder, ": holds more than one set of images (", list, "); put the one to use in a folder of its own");
  }
  if (found.empty()) {
    fail(ErrorCode::kIo, folder, ": no file ", parts[0], " or ", parts[0], ".gz",
         folder == kFashionMnistFolder ? "; apt-get install dataset-fashion-mnist brings it" : "");
  }
  return (std::filesystem::path(folder) / found).string();
}

ImageSet load_set(const std::string& folder, const std::vector<std::string>& names, std::span<const std::string_view> images,
                  std::span<const std::string_view> labels) {
  const std::string image_path = find_file(folder, names, images);
  const std::string label_path = find_file(folder, names, labels);
  io::IdxArray pixels = io::load_idx(image_path);
  io::IdxArray classes = io::load_idx(label_path);
  if (pixels.shape.size() != 3) {
    fail(ErrorCode::kCorruptData, image_path, ": ", pixels.shape.size(), " dimensions, expected 3 (images, rows, columns)");
  }
  if (classes.shape.size() != 1)
    fail(ErrorCode::kCorruptData, label_path, ": ", classes.shape.size(), " dimensions, expected 1");
  if (pixels.shape[0] != classes.shape[0]) {
    fail(ErrorCode::kCorruptData, label_path, ": ", classes.shape[0], " labels for the ", pixels.shape[0], " images of ",
         image_path);
  }
  if (pixels.shape[1] != 28 || pixels.shape[2] != 28 || pixels.shape[0] == 0) {
    fail(ErrorCode::kCorruptData, image_path, ": ", pixels.shape[0], " images of ", pixels.shape[1], "x", pixels.shape[2],
         ", expected at least one of 28x28");
  }
  return {28, 28, std::move(pixels.data), std::move(classes.data)};
}

}  // namespace

uint32_t ImageData::classes() const {
  uint32_t highest = 0;
  for (const ImageSet* set : {&train, &test}) {
    for (const uint8_t label : set->labels) highest = std::max<uint32_t>(highest, label);
  }
  return highest + 1;
}

ImageData load_image_data(const std::string& folder) {
  const std::vector<std::string> names = list_folder(folder);
  constexpr std::string_view kTrainImages[] = {"train-images-idx3-ubyte"}, kTrainLabels[] = {"train-labels-idx1-ubyte"};
  constexpr std::string_view kTestImages[] = {"t10k-images-idx3-ubyte", "test-images-idx3-ubyte"};
  constexpr std::string_view kTestLabels[] = {"t10k-labels-idx1-ubyte", "test-labels-idx1-ubyte"};
  ImageData data;
  data.train = load_set(folder, names, kTrainImages, kTrainLabels);
  data.test = load_set(folder, names, kTestImages, kTestLabels);
  return data;
}

}  // namespace kpd::train
