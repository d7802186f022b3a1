// train: federated training with compressed updates, in one process or over an engine (FedAvg, McMahan et al., AISTATS 2017;
// FedOpt, Reddi et al., ICLR 2021; the experiment of EDEN, Vargaftik et al., ICML 2022, section 6).
//
// Every round the server sends the model to a sample of the clients; each trains it on its own examples and sends the
// difference through a codec; the server decodes the messages with a weighted average in client order and hands the average to
// its optimizer. All that travels travels as a whole-model message (docs/format/gradient.md) and is counted byte by byte. All
// randomness comes from the seed, so a run can be repeated, and one that was stopped continues with the same bits. The library
// never prints: what happens is told through callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kpd/comm/exchange.h"
#include "kpd/gradient/message.h"
#include "kpd/train/task.h"

namespace kpd::train {

enum class Server : uint8_t { kSgd, kAdam };
enum class Sampling : uint8_t { kUniform, kWeighted };  // weighted: in proportion to a client's examples, without replacement
enum class Weights : uint8_t { kExamples, kUniform };   // of the messages in the average

struct FederateOptions {
  // Of the uplink, run one after another from the same model with the same samples of clients: specs, each of them alone or
  // behind "PATTERN=SPEC " for tensors by their names (gradient::CodecPolicy::text()).
  std::vector<std::string> codecs;
  uint64_t rounds = 100;
  uint64_t clients = 300;
  uint64_t examples_per_client = 200;
  double alpha = 0.3;  // of the Dirichlet split: small = few classes a client
  uint64_t clients_per_round = 10;
  uint64_t local_epochs = 1;
  uint64_t batch = 20;
  double client_lr = 0.0316;  // of EDEN's EMNIST experiment; kpd federate sets .1 for fashion-cnn (docs/methods/federate.md)
  Server server = Server::kAdam;
  double server_lr = 0.00316;
  double server_beta1 = 0.9;
  double server_beta2 = 0.99;
  double server_eps = 1e-4;
  double server_momentum = 0;  // of kSgd
  Sampling sampling = Sampling::kUniform;
  Weights weights = Weights::kExamples;
  // Every client keeps what its message lost and sends it with its next update (kpd/gradient/feedback.h), which makes up for
  // scale=biased. Takes 4 bytes a parameter for every client that has taken part; in no checkpoint, and in one process only.
  bool error_feedback = false;
  double drop = 0;  // probability that a client of the sample vanishes after it got the model
  double clip = 0;  // longest L2 norm of a client's difference, before encoding; 0 = any
  // "float32" and "bf16" send the whole model to every client of the sample. Any other spec sends the difference to what the
  // clients have; the server keeps what the codec lost and sends it with the next difference. A client that was absent first
  // fetches the differences it missed, or the whole model in float32 where that is less.
  std::string downlink = "float32";
  uint64_t eval_every = 5;  // and after each of the last kFinalRounds rounds
  uint64_t seed = 0;
  int threads = 1;         // clients trained at the same time; never changes a result
  std::string checkpoint;  // file to write, empty = none
  bool resume = false;     // continue from `checkpoint`; its settings must be equal, only `rounds` may differ
};
inline constexpr uint64_t kFinalRounds = 10;

// After a round; all counts and bytes are sums since round 1.
struct Evaluation {
  std::string codec;
  uint64_t round = 0;
  double accuracy = 0;
  double loss = 0;
  uint64_t uplink_bytes = 0, downlink_bytes = 0;
  uint64_t clients_ok = 0, dropped = 0, refused = 0;
  double seconds = 0;
};

// The end of one codec's run, or where it was stopped.
struct CodecResult {
  std::string codec;
  uint64_t rounds = 0;
  std::vector<Evaluation> evaluations;
  double final_accuracy = 0;         // mean of the evaluations after each of the last kFinalRounds rounds
  double final_accuracy_stderr = 0;  // over the same rounds; they are not independent, so this is no error bar of the method
  uint64_t uplink_bytes = 0, downlink_bytes = 0;
  uint64_t float32_bytes = 0;  // what the uplink's numbers weigh as float32 without any header
  uint64_t float32_total_bytes =
      0;  // the same for both directions, with the whole model sent down to every client of the sample
  uint64_t clients_ok = 0, dropped = 0, refused = 0;
  double update_vnmse = 0;  // sum of squared errors of all updates sent, over their sum of squares; exact, from the encoders
  double seconds = 0;
  std::vector<float> model;
  double ratio() const { return uplink_bytes ? static_cast<double>(float32_bytes) / static_cast<double>(uplink_bytes) : 0; }
  double total_ratio() const {
    const uint64_t total = uplink_bytes + downlink_bytes;
    return total ? static_cast<double>(float32_total_bytes) / static_cast<double>(total) : 0;
  }
};

// One client's difference (after training, after clipping, before encoding) in the last round of the first codec.
struct ClientUpdate {
  uint64_t client = 0;
  uint64_t examples = 0;
  std::span<const float> difference;
};

// Each may be empty. All but on_progress and stopped are called on the caller's thread.
struct FederateCallbacks {
  std::function<void(uint64_t total)> on_start;           // units of work ahead (clients to train)
  std::function<void(uint64_t units)> on_progress;        // thread-safe
  std::function<void(const Evaluation&)> on_evaluation;   // new ones only, not those read from a checkpoint
  std::function<void(const CodecResult&)> on_codec_done;  // every codec whose rounds are complete, also those finished before
  std::function<void(const ClientUpdate&)> on_update;
  std::function<void(const std::string& text)> on_warning;
  std::function<bool()>
      stopped;  // thread-safe, polled at every step; true = abandon the round begun, write the checkpoint, return
};

struct FederateResult {
  std::vector<CodecResult> codecs;  // in the order of the options; those not begun are absent
  bool stopped = false;
};

// Throws Error(kInvalidArgument) naming the option: values out of range, unknown codecs, and codecs that cannot train (an
// uplink with scale=biased needs error feedback, and that a code whose error does not grow; a downlink difference whose error
// is not below 1 grows without end); kWeighted sampling with weights by examples, which would count sizes twice. Needs no data.
void check_options(const FederateOptions& options);

// The seed that the run in a checkpoint began with. Throws Error(kIo | kCorruptData | kUnsupported).
uint64_t checkpoint_seed(const std::string& path);

// Throws what check_options throws; Error(kInvalidArgument) if the data has too few examples; Error(kIo | kCorruptData |
// kMismatch) for a checkpoint that cannot be read or written, is damaged, or belongs to other settings.
FederateResult federate(const Task& task, const FederateOptions& options, const FederateCallbacks& callbacks = {});

// The same over an engine: this rank 0 is the server, the clients of a round are trained by ranks 1 ... in turn, which call
// federate_rank() with the same options. A rank that is lost or silent for `timeout` is named by on_warning and its clients are
// trained by the other ranks, also in later rounds; a silent one that answers yet takes part again. So as long as one rank is
// well every number is that of federate() alone (but update_vnmse, which only clients know: 0); where none is, the clients
// count as dropped. A message that is wrong is refused, its client counted, and no other rank asked. A message's weight must be
// its client's. `max_norm` bounds the norm of one update as gradient::AggregatorOptions says. `exchange` has at least two
// ranks.
struct ServerOptions {
  comm::Milliseconds timeout{600000};  // of one round's training
  double max_norm = std::numeric_limits<double>::infinity();
};
FederateResult federate_server(const Task& task, const FederateOptions& options, const FederateCallbacks& callbacks,
                               comm::Exchange& exchange, const ServerOptions& server = {});
// A rank that trains, until the server has finished. Calls on_progress and stopped. Throws Error(kMismatch) if its options are
// not the server's, Error(kIo) if the server is lost.
void federate_rank(const Task& task, const FederateOptions& options, const FederateCallbacks& callbacks,
                   comm::Exchange& exchange, const ServerOptions& server = {});

}  // namespace kpd::train
