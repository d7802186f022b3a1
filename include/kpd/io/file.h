// io: whole files, read by mapping and written so that nothing half-written is ever left in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kpd::io {

// A read-only mapping of a regular file; empty for an empty file. Movable; thread-compatible. If another process shortens the
// file while it is mapped, the operating system raises SIGBUS: do not map files that others rewrite in place.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& name() const { return name_; }

 private:
  friend MappedFile map_file(const std::string& path);
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::string name_;
};

// Throws Error(kIo) naming the path and the reason: absent, unreadable, a directory, not a regular file.
MappedFile map_file(const std::string& path);

// Writes beside the target (same folder, a name of its own) and renames on commit(). Without commit(), or after an error, the
// destructor removes what was written and the target stays as it was. A symbolic link is followed. A target that is
// a device or a pipe is written directly. Errors are Error(kIo) naming path, byte and reason. Thread-compatible.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const uint8_t> bytes);
  uint64_t size_bytes() const { return size_bytes_; }
  // Flushes to the device and puts the file in place. Nothing may be written afterwards.
  void commit();

 private:
  void fail_errno(const char* what, int error);
  void discard() noexcept;

  std::string path_;    // as given, for errors
  std::string target_;  // links resolved
  std::string temp_;    // empty if the target is written directly
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
};

// AtomicFile in one call.
void write_file(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace kpd::io
