// io: mapping and atomic replacement of files on POSIX systems.
#include "kpd/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/rng.h"
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

}  // namespace

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), name_(std::move(other.name_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(name_, other.name_);
  return *this;
}

MappedFile map_file(const std::string& path) {
  // Not blocking: opening a pipe that nobody writes would wait for ever.
  const FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat info;
  if (file.fd < 0 || fstat(file.fd, &info) != 0) fail(ErrorCode::kIo, printable_path(path), ": cannot open: ", reason(errno));
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::kIo, printable_path(path), ": is ", kind_of(info.st_mode), ", expected a file");
  MappedFile mapped;
  mapped.name_ = path;
  if (info.st_size > 0) {
    const size_t size = static_cast<size_t>(info.st_size);
    void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (data == MAP_FAILED) fail(ErrorCode::kIo, printable_path(path), ": cannot map ", size, " bytes: ", reason(errno));
    mapped.data_ = static_cast<const uint8_t*>(data);
    mapped.size_ = size;
  }
  return mapped;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(resolve_links(path)) {
  struct stat info;
  mode_t mode = 0666;
  bool exists = false;
  if (stat(target_.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) fail(ErrorCode::kIo, printable_path(path), ": is a directory, expected a file to write");
    if (!S_ISREG(info.st_mode)) {
      fd_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
      if (fd_ < 0) fail_errno("cannot open for writing", errno);
      return;
    }
    // A file that its owner made read-only is not replaced behind his back.
    if (access(target_.c_str(), W_OK) != 0) fail_errno("cannot write", errno);
    exists = true;
    mode = info.st_mode & 07777;
  }
  for (int attempt = 0; fd_ < 0; ++attempt) {
    uint8_t random[8];
    const uint64_t entropy = os_entropy();
    std::memcpy(random, &entropy, sizeof(random));
    const std::string name = folder_of(target_) + "/.kpd-" + hex(random) + ".tmp";
    fd_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0) {
      temp_ = name;
    } else if (errno != EEXIST || attempt == 10) {
      fail_errno("cannot create", errno);
    }
  }
  if (exists) (void)fchmod(fd_, mode);  // best effort: a file system without modes has nothing to keep
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (!temp_.empty()) unlink(temp_.c_str());
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

void AtomicFile::commit() {
  if (fd_ < 0) fail(ErrorCode::kInvalidArgument, printable_path(path_), ": committed after it was closed");
  // Delayed allocation may report a full disk only here. Devices and pipes refuse fsync with EINVAL or EROFS.
  if (!temp_.empty() && fsync(fd_) != 0) fail_errno("cannot flush", errno);
  const int fd = std::exchange(fd_, -1);
  if (close(fd) != 0 && errno != EINTR) fail_errno("cannot close", errno);
  if (temp_.empty()) return;
  if (rename(temp_.c_str(), target_.c_str()) != 0) fail_errno("cannot put in place", errno);
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

}  // namespace kpd::io
