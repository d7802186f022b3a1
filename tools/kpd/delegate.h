// tools: commands that live in a second program. Loading libtorch takes .4 s, which `kpd inspect` should not pay; so what
// trains is built into kpd-train, and kpd runs that.
#pragma once

#include <string>
#include <vector>

namespace kpd::tool {

// Path of the program `name` in this program's own folder; "" if there is none.
std::string program_beside(const std::string& name);

// The file name of this program, "" if unknown.
std::string this_program();
// What this program was called with behind its command; main() sets it.
std::vector<std::string>& arguments();

// Replaces this process by `program`. Throws Error(kIo) if the system refuses; else it does not return.
[[noreturn]] void run_instead(const std::string& program, const std::string& command, const std::vector<std::string>& args);

}  // namespace kpd::tool
