// io: whole files, read by mapping and written so that nothing half-written is ever left in place.
//
// What cannot be mapped, a pipe or a terminal, is copied first: a short one into memory, a longer one into a file without a
// name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kpd::io {

// Whether a mapped file stays open beside its mapping, which takes a handle.
enum class Handle { kClose, kKeep };

// A read-only mapping of a regular file; empty for an empty file. Movable; thread-compatible. If another process shortens the
// file while it is mapped, reading bytes() raises SIGBUS: a program that maps files which others may rewrite in place needs
// a handler, for which mapped_file_at() tells the file, or reads by read().
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }  // the same bytes
  const std::string& name() const { return name_; }
  // Copies bytes() from `offset` on. With Handle::kKeep a file that has become shorter, or whose disk fails, is Error(kIo) and
  // no signal; without it this is a copy of bytes(). Throws Error(kInvalidArgument) beyond their end. Thread-safe.
  void read(size_t offset, std::span<uint8_t> to) const;

 private:
  friend MappedFile map_file(const std::string& path, Handle handle);
  friend MappedFile map_input(const std::string& path, const std::string& spool_folder);
  void map(int fd, size_t size);

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  int slot_ = -1;  // in the table behind mapped_file_at()
  int fd_ = -1;    // with Handle::kKeep
  std::string name_;
};

// Throws Error(kIo) naming the path and the reason: absent, unreadable, a directory, not a regular file.
MappedFile map_file(const std::string& path, Handle handle = Handle::kClose);

// map_file(), and beyond it "-" (standard input), pipes and devices, which are read to their end: up to 64 MiB into memory,
// more into an unnamed file in `spool_folder`. Blocks until whoever writes the pipe closes it.
MappedFile map_input(const std::string& path, const std::string& spool_folder);

// The path of the open mapping that holds `address`, or null. Async-signal-safe: for a handler of SIGBUS.
const char* mapped_file_at(const void* address) noexcept;

// What becomes of a file that stands where another is to be put.
enum class Existing {
  kReplace,
  kKeep,  // a file that came since is kept, and that is Error(kIo): of two that write one new file, one fails and says so
};

// Writes beside the target (same folder, a name of its own) and renames on commit(). Without commit(), or after an error, the
// destructor removes what was written and the target stays as it was. A symbolic link is followed. A target that is
// a device or a pipe is written directly, and so is "-", standard output. Errors are Error(kIo) naming path, byte and reason.
// Thread-compatible.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, Existing existing = Existing::kReplace);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const uint8_t> bytes);
  uint64_t size_bytes() const { return size_bytes_; }
  // Overwrites what was written before at `offset`. Throws Error(kInvalidArgument) where is_stream().
  void write_at(uint64_t offset, std::span<const uint8_t> bytes);
  // Instead of write(), once: the whole file as memory, zeros at first. Its place on the device is taken now, so that a full
  // disk is an Error here. Throws Error(kInvalidArgument) where is_stream().
  std::span<uint8_t> map(uint64_t size_bytes);
  // The file ends here after all; no more than was mapped.
  void shorten(uint64_t size_bytes);
  // A device or a pipe: what was written is gone, in order and for good.
  bool is_stream() const { return temp_.empty(); }
  // Flushes to the device and puts the file in place. Nothing may be written afterwards.
  void commit();

 private:
  void fail_errno(const char* what, int error);
  void put_in_place();
  void discard() noexcept;

  std::string path_;    // as given, for errors
  std::string target_;  // links resolved
  std::string temp_;    // empty if the target is written directly
  Existing existing_;
  int fd_ = -1;
  int slot_ = -1;  // in the table of remove_unfinished_files()
  uint64_t size_bytes_ = 0;
  uint8_t* mapped_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  int mapped_slot_ = -1;  // in the table behind mapped_file_at()
  void unmap() noexcept;
};

// Removes what the AtomicFiles of this process have written beside their targets. Async-signal-safe: for a handler that ends
// the process.
void remove_unfinished_files() noexcept;

// A lock on the file name `path` against other processes (and other objects of this one), held until destruction: an flock on a
// file PATH.lock, which is removed at the end; one that a killed process left is taken over. Throws Error(kIo) if another holds
// it.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::string lock_path_;
  int fd_ = -1;
};

// AtomicFile in one call.
void write_file(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace kpd::io
