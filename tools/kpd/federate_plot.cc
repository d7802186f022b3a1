// tools: writes a gnuplot script and runs it; see federate_plot.h.
#include "federate_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>

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

// Okabe and Ito's colours, told apart with every kind of colour blindness, but yellow, which is faint on white; black is first.
// From the eighth curve on they come again with other dashes.
constexpr const char* kColours[] = {"#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"};
constexpr int kPoints[] = {7, 5, 9, 13, 11, 15, 3};
constexpr size_t kStyles = std::size(kColours);

// Where a curve ends and its name begins, as shares of the plot's width and height.
struct Label {
  double x, y, width;
};

// Moves names apart that would stand on one another, each as little as the others.
void spread(std::vector<Label>& labels, double height) {
  for (int pass = 0; pass < 200; ++pass) {
    for (size_t i = 0; i < labels.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        Label &a = labels[i], &b = labels[j];
        if (a.x > b.x + b.width || b.x > a.x + a.width) continue;
        Label& low = a.y < b.y ? a : b;
        Label& high = a.y < b.y ? b : a;
        const double missing = height - (high.y - low.y);
        if (missing <= 1e-9) continue;
        low.y -= missing / 2;
        high.y += missing / 2;
      }
    }
  }
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
      if (e.uplink_bytes > 0) s.megabytes.add(static_cast<double>(e.uplink_bytes) / 1e6);
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

// One of the two plots, between these shares of the picture's width; the names of the curves stand where these end.
std::string panel(std::span<const train::CodecResult> results, const Scales& s, bool rounds, double left, double right) {
  const Limits& across = rounds ? s.rounds : s.megabytes;
  std::string script = fmt::format(
      "set lmargin at screen {}\nset rmargin at screen {}\nset tmargin at screen 0.9\nset bmargin at screen 0.12\nset xrange "
      "[{}:{}]\n"
      "set yrange [{}:{}]\nunset label\nset xlabel '{}'\n{}",
      left, right, across.low, across.high, s.accuracy.low, s.accuracy.high, rounds ? "round" : "megabytes sent by the clients",
      rounds ? "unset logscale\n" : "set logscale x\n");
  std::vector<Label> labels;
  for (const train::CodecResult& result : results) {
    if (result.evaluations.empty()) continue;
    const train::Evaluation& last = result.evaluations.back();
    const double megabytes = static_cast<double>(last.uplink_bytes) / 1e6;
    const double x = rounds ? static_cast<double>(last.round) / across.high
                            : std::log(megabytes / across.low) / std::log(across.high / across.low);
    const double y = (last.accuracy - s.accuracy.low) / (s.accuracy.high - s.accuracy.low);
    labels.push_back({x, y, .02 + .02 * static_cast<double>(result.codec.size())});
  }
  spread(labels, .042);
  std::string curves;
  for (size_t i = 0, k = 0; i < results.size(); ++i) {
    if (results[i].evaluations.empty()) continue;
    const Label& label = labels[k++];
    script += fmt::format("set label {} {} at graph {:.4f},{:.4f} left offset 1,0 textcolor rgb '{}'\n", k,
                          quoted(results[i].codec), label.x, label.y, kColours[i % kStyles]);
    curves +=
        fmt::format("{}$data{} using {}:3 with linespoints lc rgb '{}' pt {} dt {} ps 0.6 lw 2", curves.empty() ? "" : ", ", i,
                    rounds ? 1 : 2, kColours[i % kStyles], kPoints[i % kStyles], 1 + i / kStyles);
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
      script += fmt::format("{} {} {}\n", e.round, static_cast<double>(e.uplink_bytes) / 1e6, e.accuracy);
    }
    script += "END\n";
  }
  const Scales scales = scales_of(results);
  return script + panel(results, scales, true, .05, .36) + panel(results, scales, false, .56, .87) + "unset multiplot\n";
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
