// tools: the parts of `kpd mean`: where the clients' vectors come from (mean_source.cc), the trials (mean_trials.cc), the
// speed (mean_speed.cc) and the figures (mean_report.cc). Everything is measured on decoded bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client_files.h"
#include "engines.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/synthetic.h"

namespace kpd::tool {

// One worker's view of the clients' vectors. Thread-compatible.
class ClientReader {
 public:
  virtual ~ClientReader() = default;
  // Before the load() calls of a trial.
  virtual void start_trial(uint64_t trial, int threads) = 0;
  // dst holds all tensors of a client back to back.
  virtual void load(uint64_t client, std::span<float> dst, int threads) = 0;
};

// Thread-safe.
class ClientSource {
 public:
  virtual ~ClientSource() = default;
  virtual const gradient::Manifest& manifest() const = 0;
  virtual uint64_t clients() const = 0;
  virtual std::string client_name(uint64_t client) const = 0;  // for errors
  virtual std::string description() const = 0;                 // "lognormal", "3 files"
  virtual std::unique_ptr<ClientReader> reader() const = 0;
};

std::unique_ptr<ClientSource> synthetic_source(const gradient::SyntheticSpec& spec, const std::string& text, uint64_t dim,
                                               uint64_t clients);
std::unique_ptr<ClientSource> file_source(std::shared_ptr<const ClientFiles> files);
// Of files that hold floating point only; throws Error(kUnsupported) naming a tensor of another type.
std::unique_ptr<ClientSource> file_source(const std::vector<std::string>& paths);

struct LossPlan {
  double fraction = 0;
  bool burst = false;
};

// A checked command line.
struct MeanPlan {
  std::unique_ptr<ClientSource> source;
  std::vector<std::string> codec_texts;
  std::vector<gradient::CodecPolicy> codecs;
  uint64_t dim = 0, clients = 0, trials = 0, seed = 0;
  int threads = 1;
  std::vector<double> weights;  // one a client, sum 1
  std::optional<LossPlan> loss;
  std::optional<double> link_gb_per_s;
  int repeats = 0;                           // of the speed measurement; 0: none
  std::shared_ptr<const ClientFiles> files;  // where the vectors are files
  bool keep_mean = false;
};

struct Speed {
  double encode_gb_per_s = 0, decode_gb_per_s = 0, memcpy_gb_per_s = 0;
};

struct CodecFigures {
  std::vector<double> vnmse, nmse, limit;  // per trial; NaN for one of which no message arrived
  std::vector<double> ratio;               // |sum w(x^ - x)|^2 / sum w^2|x^ - x|^2 per trial; NaN where all were coded exactly
  uint64_t wire_bytes = 0, elements = 0;   // over all messages
  uint64_t packet_overhead_bytes = 0;      // of wire_bytes
  uint64_t packets = 0, packets_lost = 0;  // with loss
  uint64_t messages = 0, messages_lost = 0;  // lost: nothing of it arrived; it is in no mean
  uint64_t groups_lost = 0;                  // blocks of other messages of which nothing arrived
  uint64_t saturated = 0;
  std::shared_ptr<io::ScratchMemory> mean;  // doubles, with keep_mean
  std::optional<Speed> speed;

  double wire_bits() const { return 8.0 * static_cast<double>(wire_bytes) / static_cast<double>(elements); }
};

// Figures of every codec, without speed. The same for any number of threads.
std::vector<CodecFigures> run_trials(const MeanPlan& plan);
Speed measure_speed(const MeanPlan& plan, const gradient::CodecPolicy& codec);

struct Estimate {
  double mean = 0;
  std::optional<double> standard_error;  // over trials; none for one trial
};
// Of those that are not NaN.
Estimate estimate(std::span<const double> trials);

// `kpd mean --comm`: every rank of an engine holds one vector; all take their mean by a pattern.
struct RankPlan {
  std::vector<std::string> codec_texts;
  std::vector<gradient::Codec> codecs;
  std::optional<gradient::Codec> second;
  std::string pattern;
  std::vector<std::string> files;  // one a rank, or one in whose name {rank} stands for it
  std::optional<gradient::SyntheticSpec> synthetic;
  std::string synthetic_text;
  uint64_t dim = 0, trials = 1, seed = 1;
  std::vector<uint64_t> weights;  // one a rank, or empty: equal
  std::string out;                // where rank 0 writes the mean
  io::Existing existing = io::Existing::kKeep;
  int threads = 1;
  bool json = false;
  Format format = Format::kText;
};
int run_ranks(const RankPlan& plan, const EngineOptions& engine);

// `kpd mean` of compressed files.
struct CompressedPlan {
  std::vector<double> weights;         // one a file, sum 1
  std::vector<std::string> originals;  // what was encoded, one a file, or none
  FileOptions options;
  std::string out;
  io::TensorFormat out_format = io::TensorFormat::kNpy;
  Integers integers = Integers::kFirst;
  int threads = 1;
  bool json = false;
  Format format = Format::kText;
};
// Throws Error(kMismatch) for two files of one key.
int run_compressed(const CompressedPlan& plan, const ClientFiles& files);

inline constexpr const char* kVnmseLegend = "squared error of the vectors over their squares";
inline constexpr const char* kNmseLegend = "squared error of the mean over the average square of a vector";
inline constexpr const char* kRatioLegend = "|sum w(x^ - x)|^2 / sum w^2 |x^ - x|^2, 1 for independent errors";

void print_mean_json(const MeanPlan& plan, size_t codec, const CodecFigures& figures);
void print_mean_table(const MeanPlan& plan, std::span<const CodecFigures> figures, Format format);

}  // namespace kpd::tool
