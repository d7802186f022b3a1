// train: the rounds of one codec's run. Torch-free; everything that a round changes is in RunState and changes only when the
// round is complete.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kpd/gradient/aggregate.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/decoder.h"
#include "kpd/train/federate.h"
#include "train/checkpoint.h"

namespace kpd::train {

// What all codecs of a run share: the split of the data and a worker for each thread.
struct Federation {
  Federation(const Task& task, const FederateOptions& options);
  const Task& task;
  const FederateOptions& options;
  uint64_t parameters = 0;
  std::vector<std::vector<uint32_t>> clients;  // examples of each
  std::vector<uint64_t> sizes;                 // how many
  std::vector<std::unique_ptr<Worker>> workers;
};

// Tags of the messages between server and ranks; the update of the round's i-th client has kUpdateTag + i.
inline constexpr uint32_t kControlTag = 1;
inline constexpr uint32_t kUpdateTag = 16;

// What one entry of FederateOptions::codecs says. Throws Error(kInvalidArgument).
gradient::CodecPolicy uplink_policy(const std::string& text);

// The client number in the messages of the server: no client's.
inline constexpr uint64_t kServerId = ~uint64_t{0} - 1;

class RemoteRanks;

class CodecRun {
 public:
  // `state` is new (round 0) or read from a checkpoint (then its sizes are checked, Error(kCorruptData)); it must outlive the
  // run.
  CodecRun(Federation& federation, const std::string& codec, RunState& state, const FederateCallbacks& callbacks);

  // Plays round state.round + 1. False if it was stopped; the state is then as before.
  bool play_round();
  // Tests the server's model and appends to state.evaluations. False if it was stopped.
  bool evaluate();
  // The two ends of a round over an engine: the server's, and that of a rank which trains its share of the clients. The
  // server's is false also if no rank is left that trains.
  bool serve_round(RemoteRanks& ranks);
  // Of the round's clients it trains those at `slots`, places in their order; throws Error(kCorruptData) for one that is none.
  void follow_round(uint64_t round, std::span<const uint64_t> slots, std::span<const uint8_t> downlink,
                    comm::Exchange& exchange);
  // More clients of the round that was followed last, which were another rank's.
  void follow_more(std::span<const uint64_t> slots, comm::Exchange& exchange);
  // A rank that follows begins with the server's state: the clients' model where differences are sent.
  void follow_from(uint64_t round, std::span<const float> client_model);
  std::span<const float> client_model() const { return state_.client_model; }
  // Hands the differences of the round just played to callbacks.on_update.
  void report_updates() const;

 private:
  struct Client {
    uint32_t id = 0;
    bool vanished = false;
    bool refused = false;
    uint64_t weight = 0;
    std::vector<float> difference;
    std::vector<float> kept;  // with error feedback: what its message lost
    std::vector<uint8_t> message;
    uint64_t message_bytes = 0;
    gradient::EncodeReport report;
  };

  void start_state();
  void check_state() const;
  void choose_clients(uint64_t round);
  uint64_t send_model(uint64_t round);
  void receive_model(uint64_t round, std::span<const uint8_t> message);
  void begin_model();
  void decode_model(uint64_t round, std::span<const uint8_t> message);
  void collect_clients(uint64_t round, RemoteRanks& ranks);
  void judge_clients(uint64_t round, std::span<const gradient::Sender> senders, std::span<const gradient::Verdict> verdicts);
  void train_client(Client& client, uint64_t round, int worker);
  void train_locally(Client& client, uint64_t round, Worker& worker);
  void encode_update(Client& client, uint64_t round, int worker);
  void encode_with_feedback(Client& client, uint64_t round, int worker);
  bool average_updates(uint64_t round);
  bool add_messages(uint64_t round, double& total_weight);
  void count_round(uint64_t round, uint64_t downlink_message_bytes);
  uint64_t download_bytes(uint64_t heard, uint64_t round, uint64_t message_bytes) const;
  gradient::MessageIds ids(uint64_t round, uint64_t client, uint64_t weight) const;
  bool stopped() const;
  std::vector<std::span<float>> tensors(std::span<float> model) const;
  std::vector<TensorView> views(std::span<const float> model) const;

  Federation& federation_;
  const FederateOptions& options_;
  RunState& state_;
  const FederateCallbacks& callbacks_;
  uint64_t run_id_ = 0;
  gradient::RunSecret secret_;
  bool sends_difference_ = false;
  uint64_t full_model_bytes_ = 0;                // of a float32 message, where differences are sent
  std::vector<gradient::Encoder> encoders_;      // one a worker
  std::vector<gradient::Decoder> own_decoders_;  // one a worker, with error feedback
  std::vector<std::vector<float>> errors_;       // with error feedback: what each client's last message lost
  std::optional<gradient::Encoder> downlink_encoder_;
  std::optional<gradient::Decoder> decoder_;
  std::vector<uint8_t> downlink_message_;
  std::optional<gradient::Aggregator> aggregator_;  // of serve_round()
  std::vector<float> base_;                         // the model that the clients of this round start from
  std::vector<float> average_;                      // of the decoded differences; before that, scratch
  uint64_t base_hash_ = 0;
  std::vector<Client> chosen_;
  mutable std::atomic<bool> stop_seen_{false};
};

}  // namespace kpd::train
