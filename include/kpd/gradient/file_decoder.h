// gradient: the tensors of a file, one by one (docs/format/gradient.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kpd/gradient/decoder.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {

// Decodes the tensors of a file-form stream already read by read_stream_info, which both must outlive it. Keeps the last
// segment of a joined unit, so that tensors decoded in manifest order decode each segment once. Thread-compatible.
class FileDecoder {
 public:
  FileDecoder(std::span<const uint8_t> stream, const StreamInfo& info, int threads = 1, std::string_view name = "file");
  ~FileDecoder();
  FileDecoder(FileDecoder&&) noexcept;
  FileDecoder& operator=(FileDecoder&&) noexcept;
  // dst (the tensor's count of floats) = decoded.
  void decode(size_t index, std::span<float> dst, DecodeReport* report = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
// One tensor of it.
void decode_file_tensor(std::span<const uint8_t> stream, const StreamInfo& info, size_t index, std::span<float> dst,
                        int threads = 1, DecodeReport* report = nullptr, std::string_view name = "file");
// The elements of tensor `index`, of an exact type, as they are: a part of the stream. Error(kInvalidArgument) for other types.
std::span<const uint8_t> decode_file_exact(std::span<const uint8_t> stream, const StreamInfo& info, size_t index);

}  // namespace kpd::gradient
