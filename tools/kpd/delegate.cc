// tools: finds and starts a second program (delegate.h).
#include "delegate.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "kpd/base/error.h"

namespace kpd::tool {

namespace {

std::filesystem::path own_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

}  // namespace

std::string this_program() { return own_path().filename(); }

std::vector<std::string>& arguments() {
  static std::vector<std::string> list;
  return list;
}

std::string program_beside(const std::string& name) {
  const std::filesystem::path self = own_path();
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
