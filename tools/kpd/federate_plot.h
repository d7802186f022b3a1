// tools: the plot of `kpd federate`: accuracy over rounds and over the megabytes sent up, one line a codec, drawn by gnuplot.
#pragma once

#include <span>
#include <string>

#include "kpd/train/federate.h"

namespace kpd::tool {

// Throws UsageError for a name that does not end in .png, Error(kIo) if there is no gnuplot in PATH.
void check_plot(const std::string& path);
// Written beside `path` and renamed. Throws Error(kIo).
void plot_accuracy(const std::string& path, const std::string& title, std::span<const train::CodecResult> results);

}  // namespace kpd::tool
