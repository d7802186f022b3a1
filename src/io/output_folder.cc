// io: a folder of files that appears whole or not at all.
#include "kpd/io/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/rng.h"
#include "io/text.h"

namespace kpd::io {
namespace {

namespace fs = std::filesystem;

std::string random_name(const fs::path& parent) {
  uint8_t random[8];
  const uint64_t entropy = os_entropy();
  std::memcpy(random, &entropy, sizeof(random));
  return (parent / (".kpd-" + hex(random) + ".tmp")).string();
}

void flush_folder(const std::string& path) {
  // A file system that cannot do this still has whole files.
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  close(fd);
}

}  // namespace

OutputFolder::OutputFolder(const std::string& target, Existing existing,
                           const std::function<bool(std::string_view)>& replaceable)
    : name_(printable_path(target)), existing_(existing) {
  std::error_code error;
  fs::path path = fs::weakly_canonical(target, error);
  if (error) path = fs::absolute(target);
  if (!path.has_filename()) path = path.parent_path();
  target_ = path.string();
  if (fs::exists(path, error)) {
    if (!fs::is_directory(path, error)) fail(ErrorCode::kInvalidArgument, name_, ": is a file, expected a folder to write to");
    fs::directory_iterator it(path, error);
    if (error) fail(ErrorCode::kIo, name_, ": cannot list the folder: ", error.message());
    for (; it != fs::directory_iterator(); it.increment(error)) {
      if (existing == Existing::kKeep) fail(ErrorCode::kInvalidArgument, name_, ": is there already and not empty");
      const std::string entry = it->path().filename().string();
      if (it->is_regular_file(error) && replaceable(entry)) continue;
      fail(ErrorCode::kInvalidArgument, name_, ": holds '", printable(entry),
           "', which is none of the files that are written here; expected a new folder");
    }
  }
  for (int attempt = 0; temp_.empty(); ++attempt) {
    const std::string name = random_name(path.parent_path());
    if (mkdir(name.c_str(), 0777) == 0) {
      temp_ = name;
    } else if (errno != EEXIST || attempt == 10) {
      fail(ErrorCode::kIo, name_, ": cannot make a folder beside it: ", std::generic_category().message(errno));
    }
  }
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!temp_.empty()) fs::remove_all(temp_, ignored);
}

void OutputFolder::commit() {
  flush_folder(temp_);
  std::error_code error;
  const bool replaces = existing_ == Existing::kReplace && fs::exists(target_, error) && !fs::is_empty(target_, error);
  if (replaces && renameat2(AT_FDCWD, temp_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    // Not every file system has it; then the old one stands aside for a moment.
    const std::string aside = random_name(fs::path(target_).parent_path());
    fs::rename(target_, aside, error);
    if (!error) fs::rename(temp_, target_, error);
    if (error) {
      std::error_code ignored;
      if (!fs::exists(target_, ignored)) fs::rename(aside, target_, ignored);
      fail(ErrorCode::kIo, name_, ": cannot put in place: ", error.message());
    }
    temp_ = aside;
  } else if (!replaces && rename(temp_.c_str(), target_.c_str()) != 0) {
    const int reason = errno;
    if (reason == ENOTEMPTY || reason == EEXIST)
      fail(ErrorCode::kIo, name_, ": another has made it meanwhile; it was left as it is");
    fail(ErrorCode::kIo, name_, ": cannot put in place: ", std::generic_category().message(reason));
  } else if (!replaces) {
    temp_.clear();
  }
  flush_folder(fs::path(target_).parent_path().string());
  if (!temp_.empty()) fs::remove_all(temp_, error);  // what stood there before
  temp_.clear();
}

}  // namespace kpd::io
