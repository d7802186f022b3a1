// io: a folder of files that appears whole or not at all.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kpd/io/file.h"

namespace kpd::io {

// Files are written into path(), a folder beside the target with a name of its own, which commit() renames. Without commit(),
// or after an error, the destructor removes it and the target stays as it was. Errors are Error(kIo) naming the target.
// Thread-compatible.
class OutputFolder {
 public:
  // A target that is there already is replaced with Existing::kReplace alone, and only if `replaceable` says of every entry in
  // it, by its name, that it may go: else Error(kInvalidArgument) naming one that may not. An empty folder is as none.
  OutputFolder(const std::string& target, Existing existing, const std::function<bool(std::string_view)>& replaceable);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::string& path() const { return temp_; }
  void commit();

 private:
  std::string name_;    // as given, for errors
  std::string target_;  // links resolved, no slash at its end
  std::string temp_;
  Existing existing_;
};

}  // namespace kpd::io
