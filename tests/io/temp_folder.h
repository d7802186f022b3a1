// tests: a folder of one test, removed with all in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kpd::testing {

class TempFolder : public ::testing::Test {
 protected:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kpd-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
  }
  ~TempFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string put(const std::string& name, const std::vector<uint8_t>& bytes) const {
    std::ofstream(path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
    return path(name);
  }

  std::vector<uint8_t> get(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& item : std::filesystem::directory_iterator(folder_)) found.push_back(item.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string folder_;
};

inline std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace kpd::testing
