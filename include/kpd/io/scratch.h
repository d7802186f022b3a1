// io: memory beyond what a process should hold: large scratch memory and outputs whose bytes are put together out of order.
// Both are mappings of files, which the system writes back when memory is short.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kpd/io/file.h"

namespace kpd::io {

// Zeros at first. Up to 64 MiB are memory of the process, more is an unnamed file in `folder`, gone with the object however the
// process ends. Movable; thread-compatible. Throws Error(kIo) naming the folder (full, absent), std::bad_alloc.
class ScratchMemory {
 public:
  ScratchMemory() = default;
  ScratchMemory(uint64_t size_bytes, const std::string& folder);
  ~ScratchMemory();
  ScratchMemory(ScratchMemory&& other) noexcept;
  ScratchMemory& operator=(ScratchMemory&& other) noexcept;

  std::span<uint8_t> bytes() const { return {data_, size_}; }
  // The bytes as elements of T; their number is rounded down.
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  int slot_ = -1;
};

// An AtomicFile as memory: a mapping of it, or ScratchMemory that commit() writes in order where the target is a stream or
// short.
class MappedOutput {
 public:
  MappedOutput(const std::string& path, uint64_t size_bytes, const std::string& scratch_folder,
               Existing existing = Existing::kReplace);
  std::span<uint8_t> bytes() const { return bytes_; }
  // The first size_bytes are the output, all by default.
  void commit();
  void commit(uint64_t size_bytes);

 private:
  AtomicFile file_;
  ScratchMemory scratch_;
  std::span<uint8_t> bytes_;
};

}  // namespace kpd::io
