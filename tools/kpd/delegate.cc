// tools: finds and starts a second program (delegate.h).
#include "delegate.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "kpd/base/error.h"

namespace kpd::tool {

std::string program_beside(const std::string& name) {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (self.empty()) return "";
  const std::string path = self.parent_path() / name;
  return access(path.c_str(), X_OK) == 0 ? path : "";
}

void run_instead(const std::string& program, const std::string& command, const std::vector<std::string>& args) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str()), const_cast<char*>(command.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  fail(ErrorCode::kIo, program, ": cannot be run: ", std::strerror(errno));
}

}  // namespace kpd::tool
