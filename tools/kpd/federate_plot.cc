// tools: writes a gnuplot script and runs it; see federate_plot.h.
#include "federate_plot.h"

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "kpd/io/file.h"

extern char** environ;

namespace kpd::tool {
namespace {

std::string find_gnuplot() {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const std::string candidate = folder + "/gnuplot";
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  fail(ErrorCode::kIo, "--plot: gnuplot is not installed; get it with: apt-get install gnuplot-nox");
}

// A string in gnuplot's single quotes, the only ones in which it runs nothing: between double quotes a command in back-ticks is
// executed.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += '\'';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

std::string make_script(const std::string& out, const std::string& title, std::span<const train::CodecResult> results) {
  std::string script = fmt::format(
      "set terminal pngcairo noenhanced size 1200,520 font 'sans,11'\nset output {}\n"
      "set multiplot layout 1,2 title {}\nset grid\nset key bottom right\nset ylabel 'test accuracy'\n",
      quoted(out), quoted(title));
  for (size_t i = 0; i < results.size(); ++i) {
    script += fmt::format("$data{} << END\n", i);
    for (const train::Evaluation& e : results[i].evaluations) {
      script += fmt::format("{} {} {}\n", e.round, static_cast<double>(e.uplink_bytes) / 1e6, e.accuracy);
    }
    script += "END\n";
  }
  for (const int column : {1, 2}) {
    script += column == 1 ? "set xlabel 'round'\n" : "set xlabel 'megabytes sent by the clients'\nset logscale x\n";
    script += "plot ";
    for (size_t i = 0; i < results.size(); ++i) {
      script += fmt::format("{}$data{} using {}:3 with linespoints pt 7 ps 0.5 lw 2 title {}", i == 0 ? "" : ", ", i, column,
                            quoted(results[i].codec));
    }
    script += "\n";
  }
  return script + "unset multiplot\n";
}

void run_gnuplot(const std::string& program, const std::string& script_path) {
  // A name that begins with '-' would be an option.
  std::string name = program, argument = script_path.starts_with("-") ? "./" + script_path : script_path;
  char* argv[] = {name.data(), argument.data(), nullptr};
  pid_t child = 0;
  int status = 0;
  if (posix_spawn(&child, program.c_str(), nullptr, nullptr, argv, environ) != 0)
    fail(ErrorCode::kIo, "--plot: cannot run ", program);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail(ErrorCode::kIo, "--plot: ", program, " failed");
}

}  // namespace

void check_plot(const std::string& path) {
  if (!path.ends_with(".png")) usage("--plot ", path, ": expected a name that ends in .png");
  find_gnuplot();
}

void plot_accuracy(const std::string& path, const std::string& title, std::span<const train::CodecResult> results) {
  const std::string part = fmt::format("{}.{}.part", path, getpid()), script = part + ".gnuplot";
  std::error_code ignored;
  try {
    const std::string text = make_script(part, title, results);
    io::write_file(script, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    run_gnuplot(find_gnuplot(), script);
    std::filesystem::rename(part, path);
  } catch (const std::filesystem::filesystem_error& e) {
    std::filesystem::remove(script, ignored);
    fail(ErrorCode::kIo, path, ": ", e.code().message());
  } catch (...) {
    std::filesystem::remove(part, ignored);
    std::filesystem::remove(script, ignored);
    throw;
  }
  std::filesystem::remove(script, ignored);
}

}  // namespace kpd::tool
