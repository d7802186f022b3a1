// tools: `kpd mean` of compressed files: what they decode to is averaged. Nothing is encoded, so nothing is known of their
// errors unless the vectors they were made of are given; see mean.h.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "kpd/base/threads.h"
#include "mean/mean.h"
#include "progress.h"
#include "spec_text.h"
#include "table.h"

namespace kpd::tool {
namespace {

constexpr size_t kChunk = size_t{1} << 16;
constexpr uint8_t kFloat32Method = 0;

struct Figures {
  uint64_t bytes = 0;
  double error2 = 0, norm2 = 0, weighted_error2 = 0, mean_error2 = 0;
};

bool draws_random_numbers(const gradient::StreamInfo& info) {
  const auto& rows = gradient::methods();
  return std::any_of(info.units.begin(), info.units.end(), [&](const gradient::UnitRecord& unit) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const gradient::MethodRow& r) { return r.id == unit.params.method; });
    return unit.params.method != kFloat32Method && row != rows.end() && row->name != "bf16" && row->name != "exact";
  });
}

// Errors of files whose rotations are the same do not cancel: ten files of one key are as wrong together as one of them.
void refuse_equal_keys(const ClientFiles& files) {
  std::map<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>, size_t> seen;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::shared_ptr<const ClientFile> file = files.file(i);
    const gradient::StreamInfo& info = file->info();
    if (!draws_random_numbers(info)) continue;
    const auto [first, fresh] = seen.emplace(std::tuple(info.seed, info.ids.round, info.ids.client, info.manifest_hash), i);
    if (fresh) continue;
    fail(ErrorCode::kMismatch, files.path(i), ": has seed ", info.seed, ", round ", info.ids.round, " and client ",
         info.ids.client, " as ", files.path(first->second),
         ", so that their errors do not cancel; expected files encoded with different --client (or --seed)");
  }
}

class Sum {
 public:
  Sum(const CompressedPlan& plan, const ClientFiles& files)
      : plan_(plan),
        files_(files),
        dim_(element_count(files.float_manifest())),
        decoded_(dim_ * sizeof(float), scratch_folder()),
        mean_(dim_ * sizeof(double), scratch_folder()) {
    if (!plan.originals.empty()) {
      originals_.emplace(plan.originals, plan.options);
      if (originals_->compressed()) usage("--original: ", originals_->path(0), ": is compressed, expected what was encoded");
      check_originals();
      true_ = io::ScratchMemory(dim_ * sizeof(float), scratch_folder());
      error_ = io::ScratchMemory(dim_ * sizeof(double), scratch_folder());
    }
  }

  Figures run() {
    Figures figures;
    Progress progress("mean", files_.size(), "files");
    const auto mean = mean_.as<double>(), error = error_.as<double>();
    for (size_t c = 0; c < files_.size(); ++c) {
      const auto x = decoded_.as<float>(), y = true_.as<float>();
      files_.load(c, x, plan_.threads);
      if (originals_) originals_->load(c, y, plan_.threads);
      figures.bytes += files_.file(c)->file_bytes();
      const double w = plan_.weights[c];
      std::vector<double> error2((dim_ + kChunk - 1) / kChunk), norm2(error2.size());
      parallel_for(error2.size(), plan_.threads, [&](size_t chunk, int) {
        const size_t end = std::min<size_t>(dim_, (chunk + 1) * kChunk);
        for (size_t i = chunk * kChunk; i < end; ++i) mean[i] += w * double{x[i]};
        for (size_t i = chunk * kChunk; i < end && originals_; ++i) {
          const double e = double{x[i]} - double{y[i]};
          error[i] += w * e;
          error2[chunk] += e * e;
          norm2[chunk] += double{y[i]} * double{y[i]};
        }
      });
      double client_error2 = 0;
      for (const double e : error2) client_error2 += e;
      for (const double n : norm2) figures.norm2 += n;
      figures.error2 += client_error2;
      figures.weighted_error2 += w * w * client_error2;
      progress.tick();
    }
    for (const double e : error) figures.mean_error2 += e * e;
    return figures;
  }
  std::span<const double> mean() const { return mean_.as<double>(); }
  uint64_t dim() const { return dim_; }
  bool knows_errors() const { return originals_.has_value(); }

 private:
  void check_originals() const {
    if (originals_->size() != files_.size())
      usage("--original: ", originals_->size(), " files for ", files_.size(), " compressed ones");
    const gradient::Manifest &a = files_.float_manifest(), &b = originals_->float_manifest();
    bool same = a.size() == b.size();
    for (size_t i = 0; same && i < a.size(); ++i) same = a[i].name == b[i].name && a[i].shape == b[i].shape;
    if (!same) fail(ErrorCode::kMismatch, originals_->path(0), ": holds other tensors than ", files_.path(0));
  }

  const CompressedPlan& plan_;
  const ClientFiles& files_;
  std::optional<ClientFiles> originals_;
  uint64_t dim_;
  io::ScratchMemory decoded_, mean_, true_, error_;
};

std::vector<std::string> codecs_of(const ClientFiles& files) {
  std::vector<std::string> codecs;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const gradient::WireParams& params : files.file(i)->info().codecs) codecs.push_back(spec_text(params));
  }
  std::sort(codecs.begin(), codecs.end());
  codecs.erase(std::unique(codecs.begin(), codecs.end()), codecs.end());
  return codecs;
}

double ratio_of(double a, double b) { return a == 0 && b == 0 ? 0 : a / b; }

void print(const CompressedPlan& plan, const ClientFiles& files, const Sum& sum, const Figures& f) {
  const auto n = static_cast<double>(files.size());
  const double bits = 8.0 * static_cast<double>(f.bytes) / static_cast<double>(sum.dim() * files.size());
  const double vnmse = ratio_of(f.error2, f.norm2), nmse = ratio_of(f.mean_error2, f.norm2 / n);
  const double ratio = f.mean_error2 / f.weighted_error2;
  const std::vector<std::string> codecs = codecs_of(files);
  if (plan.json) {
    nlohmann::ordered_json object;
    object["codecs"] = codecs;
    object["dim"] = sum.dim();
    object["clients"] = files.size();
    object["exact_elements"] = files.exact_elements();
    object["wire_bits_per_coordinate"] = bits;
    if (sum.knows_errors()) {
      object["vnmse"] = vnmse;
      object["nmse"] = nmse;
      object["ratio"] = std::isfinite(ratio) ? nlohmann::ordered_json(ratio) : nlohmann::ordered_json();
    }
    object["threads"] = plan.threads;
    fmt::print("{}\n", object.dump());
    return;
  }
  std::vector<Column> columns = {
      {"clients", "files"}, {"dim", "numbers"}, {"wire_bits_per_coordinate", "bits", "a number", "all bytes of the files"}};
  std::vector<Cell> cells = {count_cell(files.size()), count_cell(sum.dim()), fixed_cell(bits, 4)};
  if (sum.knows_errors()) {
    columns.insert(
        columns.end(),
        {{"vnmse", "vnmse", {}, kVnmseLegend}, {"nmse", "nmse", {}, kNmseLegend}, {"ratio", "ratio", {}, kRatioLegend}});
    cells.insert(cells.end(), {significant_cell(vnmse, 5), significant_cell(nmse, 5), fixed_cell(ratio, 3)});
  }
  columns.push_back({"codecs", ""});  // stands below the table elsewhere
  cells.emplace_back(fmt::format("{}", fmt::join(codecs, " and ")));
  Table table(columns);
  table.add(cells);
  fmt::print("{}", table.render(plan.format));
  if (plan.format != Format::kCsv) fmt::print("{}\n", wrapped(fmt::format("compressed by {}", fmt::join(codecs, " and "))));
}

}  // namespace

int run_compressed(const CompressedPlan& plan, const ClientFiles& files) {
  refuse_equal_keys(files);
  if (!plan.out.empty()) check_holds("--out", plan.out, plan.out_format, files.manifest());
  Sum sum(plan, files);
  const Figures figures = sum.run();
  if (!plan.out.empty()) {
    note_limited(plan.out,
                 files.write_mean(plan.out, plan.out_format, plan.options.existing(), sum.mean(), plan.weights, plan.integers));
    if (is_stream_name(plan.out)) send_reports_to_stderr();
  }
  print(plan, files, sum, figures);
  return kExitOk;
}

}  // namespace kpd::tool
