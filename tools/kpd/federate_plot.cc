// tools: writes a gnuplot script and runs it; see federate_plot.h.
#include "federate_plot.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "kpd/base/bytes.h"
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

// Okabe and Ito's colours, told apart with every kind of colour blindness, but yellow, which is faint on white; black is first.
// From the eighth curve on they come again with other dashes.
constexpr const char* kColours[] = {"#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"};
constexpr int kPoints[] = {7, 5, 9, 13, 11, 15, 3};
constexpr size_t kStyles = std::size(kColours);
constexpr double kMega = 1e6;

// Where the names of curves stand beside a plot: at the heights (shares of it) of the curves' ends, but `least` apart and not
// above the plot.
void spread(std::vector<double>& heights, double least) {
  std::vector<double*> order;
  for (double& y : heights) order.push_back(&y);
  std::stable_sort(order.begin(), order.end(), [](const double* a, const double* b) { return *a < *b; });
  for (int pass = 0; pass < 300; ++pass) {
    for (size_t i = 1; i < order.size(); ++i) {
      const double missing = least - (*order[i] - *order[i - 1]);
      if (missing <= 1e-9) continue;
      *order[i - 1] -= missing / 2;
      *order[i] += missing / 2;
    }
  }
  for (size_t i = 0; i < order.size(); ++i)
    *order[i] = std::min(*order[i], 1 - least * static_cast<double>(order.size() - 1 - i));
}

struct Limits {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double v) { low = std::min(low, v), high = std::max(high, v); }
};

// The scales of both plots: rounds from 0, megabytes in powers of ten, accuracy from the lowest test to the highest.
struct Scales {
  Limits rounds, megabytes, accuracy;
};

Scales scales_of(std::span<const train::CodecResult> results) {
  Scales s;
  for (const train::CodecResult& result : results) {
    for (const train::Evaluation& e : result.evaluations) {
      s.rounds.add(static_cast<double>(e.round));
      if (e.uplink_bytes > 0) s.megabytes.add(static_cast<double>(e.uplink_bytes) / kMega);
      s.accuracy.add(e.accuracy);
    }
  }
  const double room = std::max(.01, .03 * (s.accuracy.high - s.accuracy.low));
  s.accuracy.low -= room;
  s.accuracy.high += room;
  s.rounds.low = 0;
  s.megabytes.low /= 1.2;
  s.megabytes.high *= 1.2;
  return s;
}

// One of the two plots, between these shares of the picture's width, with the names of the curves beside it.
std::string panel(std::span<const train::CodecResult> results, const Scales& s, bool rounds, double left, double right) {
  const Limits& across = rounds ? s.rounds : s.megabytes;
  std::string script = fmt::format(
      "set lmargin at screen {}\nset rmargin at screen {}\nset tmargin at screen 0.9\nset bmargin at screen 0.12\nset xrange "
      "[{}:{}]\n"
      "set yrange [{}:{}]\nunset label\nunset arrow\nset xlabel '{}'\n{}",
      left, right, across.low, across.high, s.accuracy.low, s.accuracy.high, rounds ? "round" : "megabytes sent by the clients",
      rounds ? "unset logscale\n" : "set logscale x\n");
  std::vector<double> heights;
  for (const train::CodecResult& result : results) {
    if (result.evaluations.empty()) continue;
    heights.push_back((result.evaluations.back().accuracy - s.accuracy.low) / (s.accuracy.high - s.accuracy.low));
  }
  spread(heights, .042);
  std::string curves;
  for (size_t i = 0, k = 0; i < results.size(); ++i) {
    if (results[i].evaluations.empty()) continue;
    const train::Evaluation& last = results[i].evaluations.back();
    const double height = heights[k++],
                 x = rounds ? static_cast<double>(last.round) : static_cast<double>(last.uplink_bytes) / kMega;
    const char* colour = kColours[i % kStyles];
    script += fmt::format(
        "set label {} {} at graph 1.03,{:.4f} left textcolor rgb '{}' font ',10'\n"
        "set arrow {} from first {},{} to graph 1.02,{:.4f} nohead dt 3 lc rgb '{}' back\n",
        k, quoted(results[i].codec), height, colour, k, x, last.accuracy, height, colour);
    curves += fmt::format("{}$data{} using {}:3 with linespoints lc rgb '{}' pt {} dt {} ps 0.6 lw 2",
                          curves.empty() ? "" : ", ", i, rounds ? 1 : 2, colour, kPoints[i % kStyles], 1 + i / kStyles);
  }
  return script + "plot " + curves + "\n";
}

std::string make_script(const std::string& out, const std::string& title, std::span<const train::CodecResult> results) {
  std::string script = fmt::format(
      "set terminal pngcairo noenhanced size 1400,560 font 'sans,11'\nset output {}\n"
      "set multiplot title {}\nset grid\nunset key\nset ylabel 'test accuracy'\n",
      quoted(out), quoted(title));
  for (size_t i = 0; i < results.size(); ++i) {
    script += fmt::format("$data{} << END\n", i);
    for (const train::Evaluation& e : results[i].evaluations) {
      script += fmt::format("{} {} {}\n", e.round, static_cast<double>(e.uplink_bytes) / kMega, e.accuracy);
    }
    script += "END\n";
  }
  const Scales scales = scales_of(results);
  return script + panel(results, scales, true, .05, .33) + panel(results, scales, false, .55, .83) + "unset multiplot\n";
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
    io::write_file(script, text_bytes(text));
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
