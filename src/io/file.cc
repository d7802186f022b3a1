// io: mapping and atomic replacement of files on POSIX systems.
#include "kpd/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/rng.h"
#include "io/mappings.h"
#include "io/text.h"

namespace kpd::io {
namespace {

std::string reason(int error) {
  if (error == ENOSPC) return "no space left on device";
  return std::generic_category().message(error);
}

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The path behind any symbolic links, also if the last of them points at a file that does not exist yet.
std::string resolve_links(std::string path) {
  for (int hops = 0; hops < 40; ++hops) {
    char link[4096];
    const ssize_t n = readlink(path.c_str(), link, sizeof(link));
    if (n <= 0 || n == static_cast<ssize_t>(sizeof(link))) break;
    const std::string to(link, static_cast<size_t>(n));
    path = to[0] == '/' ? to : folder_of(path) + "/" + to;
  }
  return path;
}

// What a signal handler may look at: fixed tables of atomics, no locks. A mapping or file beyond the tables' sizes works as any
// other, but the handlers do not know it.
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);
struct MappingSlot {
  std::atomic<bool> used{false};
  std::atomic<uintptr_t> begin{0}, end{0};
  char name[1024];
};
MappingSlot g_mappings[256];
std::atomic<const char*> g_unfinished[64];

int register_unfinished(const std::string& path) {
  for (size_t i = 0; i < std::size(g_unfinished); ++i) {
    const char* none = nullptr;
    if (g_unfinished[i].compare_exchange_strong(none, path.c_str())) return static_cast<int>(i);
  }
  return -1;
}

void forget_unfinished(int& index) {
  if (index >= 0) g_unfinished[index].store(nullptr);
  index = -1;
}

size_t read_some(int fd, std::span<uint8_t> dst, const std::string& path) {
  for (;;) {
    const ssize_t n = read(fd, dst.data(), dst.size());
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) fail(ErrorCode::kIo, printable_path(path), ": cannot read: ", reason(errno));
  }
}

void write_all(int fd, std::span<const uint8_t> bytes, const std::string& where) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::kIo, printable_path(where), ": cannot write a copy of a pipe: ", reason(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

constexpr size_t kPipeBytes = size_t{1} << 20;  // read at once
constexpr size_t kHeldPipeBytes = kMaxHeldBytes;

}  // namespace

int register_mapping(const void* data, size_t size, const std::string& name) {
  for (size_t i = 0; i < std::size(g_mappings); ++i) {
    MappingSlot& slot = g_mappings[i];
    if (slot.used.exchange(true)) continue;
    slot.name[name.copy(slot.name, sizeof(slot.name) - 1)] = 0;
    slot.begin.store(reinterpret_cast<uintptr_t>(data));
    slot.end.store(reinterpret_cast<uintptr_t>(data) + size);
    return static_cast<int>(i);
  }
  return -1;
}

void forget_mapping(int index) {
  if (index < 0) return;
  MappingSlot& slot = g_mappings[index];
  slot.end.store(0);
  slot.begin.store(0);
  slot.used.store(false);
}

// A file that has no name, so that nothing of it is left however the process ends.
int open_unnamed(const std::string& folder) {
  int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  // Not every file system has O_TMPFILE.
  std::string name = folder + "/.kpd-XXXXXX";
  fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::kIo, printable_path(folder), ": cannot make a temporary file: ", reason(errno));
  unlink(name.c_str());
  return fd;
}

void take_space(int fd, uint64_t size_bytes, const std::string& name) {
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  if (error != 0) {
    fail(ErrorCode::kIo, printable_path(name), ": cannot write at byte 0: ", reason(error), " (", size_bytes,
         " bytes are needed)");
  }
}

const char* mapped_file_at(const void* address) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const MappingSlot& slot : g_mappings) {
    if (at >= slot.begin.load() && at < slot.end.load()) return slot.name;
  }
  return nullptr;
}

void remove_unfinished_files() noexcept {
  for (const std::atomic<const char*>& slot : g_unfinished) {
    const char* path = slot.load();
    if (path != nullptr) unlink(path);
  }
}

MappedFile::~MappedFile() {
  forget_mapping(slot_);
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
  if (fd_ >= 0) close(fd_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      slot_(std::exchange(other.slot_, -1)),
      fd_(std::exchange(other.fd_, -1)),
      name_(std::move(other.name_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(slot_, other.slot_);
  std::swap(fd_, other.fd_);
  std::swap(name_, other.name_);
  return *this;
}

void MappedFile::read(size_t offset, std::span<uint8_t> to) const {
  if (offset > size_ || to.size() > size_ - offset)
    fail(ErrorCode::kInvalidArgument, printable_path(name_), ": read beyond its ", size_, " bytes");
  if (fd_ < 0) {
    if (!to.empty()) std::memcpy(to.data(), data_ + offset, to.size());
    return;
  }
  while (!to.empty()) {
    const ssize_t n = pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::kIo, printable_path(name_), ": cannot read at byte ", offset, ": ", reason(errno));
    if (n == 0)
      fail(ErrorCode::kIo, printable_path(name_), ": ends at byte ", offset, ", expected ", size_,
           " bytes: it became shorter while it was in use");
    offset += static_cast<size_t>(n);
    to = to.subspan(static_cast<size_t>(n));
  }
}

void MappedFile::map(int fd, size_t size) {
  if (size == 0) return;
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) fail(ErrorCode::kIo, printable_path(name_), ": cannot map ", size, " bytes: ", reason(errno));
  data_ = static_cast<const uint8_t*>(data);
  size_ = size;
  slot_ = register_mapping(data, size, name_);
}

MappedFile map_input(const std::string& path, const std::string& spool_folder) {
  struct stat info;
  const bool is_stdin = path == "-";
  if (!is_stdin && (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) return map_file(path);
  const FileDescriptor file{is_stdin ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  MappedFile mapped;
  mapped.name_ = is_stdin ? "standard input" : path;
  if (file.fd < 0 || fstat(file.fd, &info) != 0) {
    fail(ErrorCode::kIo, printable_path(mapped.name_), ": cannot open: ", reason(errno));
  }
  // A file that a shell opened as standard input is mapped as it is, unless a part of it was read.
  if (S_ISREG(info.st_mode) && lseek(file.fd, 0, SEEK_CUR) == 0) {
    mapped.map(file.fd, static_cast<size_t>(info.st_size));
    return mapped;
  }
  std::vector<uint8_t> piece(kPipeBytes);
  FileDescriptor copy{-1};
  size_t size = 0;
  // Both copies are mappings: one kind of memory for whoever holds the result.
  void* held = mmap(nullptr, kHeldPipeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (held == MAP_FAILED) throw std::bad_alloc();
  mapped.data_ = static_cast<const uint8_t*>(held);
  mapped.size_ = kHeldPipeBytes;
  while (const size_t n = read_some(file.fd, piece, mapped.name_)) {
    if (copy.fd < 0 && size + n > kHeldPipeBytes) {
      copy.fd = open_unnamed(spool_folder);
      write_all(copy.fd, {mapped.data_, size}, spool_folder);
    }
    if (copy.fd >= 0) {
      write_all(copy.fd, std::span(piece).first(n), spool_folder);
    } else {
      std::memcpy(static_cast<uint8_t*>(held) + size, piece.data(), n);
    }
    size += n;
  }
  if (copy.fd >= 0 || size == 0) {
    munmap(held, kHeldPipeBytes);
    mapped.data_ = nullptr;
    mapped.size_ = 0;
    if (size > 0) mapped.map(copy.fd, size);
    return mapped;
  }
  // Whole pages beyond the content go back; munmap() of the rest takes the last, partly used page.
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = (size + page - 1) / page * page;
  if (used < kHeldPipeBytes) munmap(static_cast<uint8_t*>(held) + used, kHeldPipeBytes - used);
  mapped.size_ = size;
  return mapped;
}

MappedFile map_file(const std::string& path, Handle handle) {
  // Not blocking: opening a pipe that nobody writes would wait for ever.
  FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat info;
  if (file.fd < 0 || fstat(file.fd, &info) != 0) fail(ErrorCode::kIo, printable_path(path), ": cannot open: ", reason(errno));
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::kIo, printable_path(path), ": is ", kind_of(info.st_mode), ", expected a file");
  MappedFile mapped;
  mapped.name_ = path;
  mapped.map(file.fd, static_cast<size_t>(info.st_size));
  if (handle == Handle::kKeep) mapped.fd_ = std::exchange(file.fd, -1);
  return mapped;
}

AtomicFile::AtomicFile(const std::string& path, Existing existing) : path_(path), existing_(existing) {
  struct stat info;
  mode_t mode = 0666;
  bool exists = false;
  const bool is_stdout = path == "-";
  if (is_stdout) path_ = "standard output";
  if (is_stdout || stat(path.c_str(), &info) == 0) {
    if (!is_stdout && S_ISDIR(info.st_mode))
      fail(ErrorCode::kIo, printable_path(path), ": is a directory, expected a file to write");
    if (is_stdout || !S_ISREG(info.st_mode)) {
      // By the name given: a link to a pipe, as /dev/fd has them, names no file.
      fd_ = is_stdout ? dup(STDOUT_FILENO) : open(path.c_str(), O_WRONLY | O_CLOEXEC);
      if (fd_ < 0) fail_errno("cannot open for writing", errno);
      return;
    }
    target_ = resolve_links(path);
    // A file that its owner made read-only is not replaced behind his back.
    if (access(target_.c_str(), W_OK) != 0) fail_errno("cannot write", errno);
    exists = true;
    mode = info.st_mode & 07777;
  } else {
    target_ = resolve_links(path);
  }
  for (int attempt = 0; fd_ < 0; ++attempt) {
    uint8_t random[8];
    const uint64_t entropy = os_entropy();
    std::memcpy(random, &entropy, sizeof(random));
    const std::string name = folder_of(target_) + "/.kpd-" + hex(random) + ".tmp";
    fd_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0) {
      temp_ = name;
      slot_ = register_unfinished(temp_);
    } else if (errno != EEXIST || attempt == 10) {
      fail_errno("cannot create", errno);
    }
  }
  if (exists) (void)fchmod(fd_, mode);  // best effort: a file system without modes has nothing to keep
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::unmap() noexcept {
  forget_mapping(mapped_slot_);
  mapped_slot_ = -1;
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
  mapped_ = nullptr;
}

std::span<uint8_t> AtomicFile::map(uint64_t size_bytes) {
  if (fd_ < 0 || is_stream() || size_bytes_ != 0) {
    fail(ErrorCode::kInvalidArgument, printable_path(path_), ": mapped after it was written, or where it cannot be");
  }
  if (size_bytes == 0) return {};
  try {
    take_space(fd_, size_bytes, path_);
  } catch (const Error&) {
    discard();
    throw;
  }
  // mmap() needs to read what it maps.
  const FileDescriptor both{open(temp_.c_str(), O_RDWR | O_CLOEXEC)};
  void* data = both.fd < 0 ? MAP_FAILED : mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, both.fd, 0);
  if (data == MAP_FAILED) fail_errno("cannot map", errno);
  mapped_ = static_cast<uint8_t*>(data);
  mapped_bytes_ = size_bytes_ = size_bytes;
  mapped_slot_ = register_mapping(data, size_bytes, path_);
  return {mapped_, size_bytes};
}

void AtomicFile::shorten(uint64_t size_bytes) {
  if (fd_ < 0 || size_bytes > mapped_bytes_)
    fail(ErrorCode::kInvalidArgument, printable_path(path_), ": shortened to more than it has");
  size_bytes_ = size_bytes;
}

void AtomicFile::discard() noexcept {
  unmap();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (!temp_.empty()) unlink(temp_.c_str());
  forget_unfinished(slot_);
  temp_.clear();
}

void AtomicFile::fail_errno(const char* what, int error) {
  discard();
  fail(ErrorCode::kIo, printable_path(path_), ": ", what, " at byte ", size_bytes_, ": ", reason(error));
}

void AtomicFile::write(std::span<const uint8_t> bytes) {
  if (fd_ < 0) fail(ErrorCode::kInvalidArgument, printable_path(path_), ": written after it was closed");
  constexpr size_t kMaxChunkBytes = size_t{1} << 30;  // Linux writes at most 2^31 - 4096 in one call
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kMaxChunkBytes));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_errno("cannot write", errno);
    }
    size_bytes_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::write_at(uint64_t offset, std::span<const uint8_t> bytes) {
  if (fd_ < 0 || is_stream() || offset + bytes.size() > size_bytes_) {
    fail(ErrorCode::kInvalidArgument, printable_path(path_), ": overwritten where nothing was written or it cannot be");
  }
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("cannot write", errno);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::put_in_place() {
  if (existing_ == Existing::kKeep) {
    if (renameat2(AT_FDCWD, temp_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0) return;
    // Not every file system has it; then a link, which replaces nothing either, and last what is left.
    if (errno == EINVAL || errno == ENOSYS) {
      if (link(temp_.c_str(), target_.c_str()) == 0) {
        unlink(temp_.c_str());
        return;
      }
      struct stat info;
      if (errno != EEXIST) errno = lstat(target_.c_str(), &info) == 0 ? EEXIST : 0;
    }
    if (errno == EEXIST) {
      discard();
      fail(ErrorCode::kIo, printable_path(path_), ": another has made it meanwhile; it was left as it is");
    }
    if (errno != 0) fail_errno("cannot put in place", errno);
  }
  if (rename(temp_.c_str(), target_.c_str()) != 0) fail_errno("cannot put in place", errno);
}

void AtomicFile::commit() {
  if (fd_ < 0) fail(ErrorCode::kInvalidArgument, printable_path(path_), ": committed after it was closed");
  if (mapped_bytes_ > 0) {
    unmap();
    if (ftruncate(fd_, static_cast<off_t>(size_bytes_)) != 0) fail_errno("cannot shorten", errno);
  }
  // Delayed allocation may report a full disk only here. Devices and pipes refuse fsync with EINVAL or EROFS.
  if (!temp_.empty() && fsync(fd_) != 0) fail_errno("cannot flush", errno);
  const int fd = std::exchange(fd_, -1);
  if (close(fd) != 0 && errno != EINTR) fail_errno("cannot close", errno);
  if (temp_.empty()) return;
  put_in_place();
  forget_unfinished(slot_);
  temp_.clear();
  // The rename itself survives a crash only if the folder is flushed; a file system that cannot do that still has a whole file.
  const FileDescriptor folder{open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd >= 0) (void)fsync(folder.fd);
}

void write_file(const std::string& path, std::span<const uint8_t> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

FileLock::FileLock(const std::string& path) : lock_path_(resolve_links(path) + ".lock") {
  for (;;) {
    fd_ = open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) fail(ErrorCode::kIo, printable_path(lock_path_), ": cannot create: ", reason(errno));
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      close(fd_);
      if (error == EWOULDBLOCK)
        fail(ErrorCode::kIo, printable_path(path), ": another run is writing it (", lock_path_, " is locked)");
      fail(ErrorCode::kIo, printable_path(lock_path_), ": cannot lock: ", reason(error));
    }
    // Its last holder may have removed it between open() and flock(): then this is a lock on nothing.
    struct stat opened, there;
    const bool same = fstat(fd_, &opened) == 0 && stat(lock_path_.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
                      opened.st_dev == there.st_dev;
    if (same) return;
    close(fd_);
  }
}

FileLock::~FileLock() {
  unlink(lock_path_.c_str());
  close(fd_);
}

}  // namespace kpd::io
