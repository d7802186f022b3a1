// io: see kpd/io/scratch.h.
#include "kpd/io/scratch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "kpd/base/error.h"
#include "io/mappings.h"

namespace kpd::io {

ScratchMemory::ScratchMemory(uint64_t size_bytes, const std::string& folder) {
  if (size_bytes == 0) return;
  const bool held = size_bytes <= kMaxHeldBytes;
  void* data = MAP_FAILED;
  if (held) {
    data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else {
    const int fd = open_unnamed(folder);
    try {
      take_space(fd, size_bytes, folder);
      data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    } catch (const Error&) {
      close(fd);
      throw;
    }
    close(fd);
  }
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(data);
  size_ = size_bytes;
  if (!held) slot_ = register_mapping(data, size_bytes, folder + " (a temporary file)");
}

ScratchMemory::~ScratchMemory() {
  forget_mapping(slot_);
  if (data_ != nullptr) munmap(data_, size_);
}

ScratchMemory::ScratchMemory(ScratchMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), slot_(std::exchange(other.slot_, -1)) {}

ScratchMemory& ScratchMemory::operator=(ScratchMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(slot_, other.slot_);
  return *this;
}

MappedOutput::MappedOutput(const std::string& path, uint64_t size_bytes, const std::string& scratch_folder, Existing existing)
    : file_(path, existing) {
  // A short one needs no place on the device but what it turns out to take.
  if (file_.is_stream() || size_bytes <= kMaxHeldBytes) {
    scratch_ = ScratchMemory(size_bytes, scratch_folder);
    bytes_ = scratch_.bytes();
  } else {
    bytes_ = file_.map(size_bytes);
  }
}

void MappedOutput::commit() { commit(bytes_.size()); }

void MappedOutput::commit(uint64_t size_bytes) {
  if (size_bytes > bytes_.size())
    fail(ErrorCode::kInvalidArgument, "an output of ", bytes_.size(), " bytes ends after ", size_bytes);
  if (scratch_.bytes().size() == bytes_.size()) {
    file_.write(bytes_.first(size_bytes));
  } else {
    file_.shorten(size_bytes);
  }
  file_.commit();
}

}  // namespace kpd::io
