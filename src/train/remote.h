// train: what server and training ranks tell each other over an engine, beside models and updates. Private.
//
// All from the server, on one tag: greeting {magic, hash of the settings}, run {index of the codec, round, the clients' model
// where differences are sent}, round {number, which of its clients the rank trains, the downlink's message}, more {which other
// clients of that round}, end; and between them signs of life, for a rank gives up a server of which it hears nothing, while a
// test or a slow rank may take the server any time. A rank answers the greeting with its own. Updates have a tag a client
// (codec_run.h).
//
// Who trains a client changes no number: all that it draws is named by seed, round and client. So a rank that is lost, or
// silent for a time-out, has its clients dealt out again to the others within the round, in turn, and gets none in later
// rounds; the round's result is that of a run without it. A silent one is sent nothing but signs of life. Once all messages
// that it owes have come it is told the state of the run and takes part again. Where none is left of those that answer, all
// that are not lost are asked again in the next round.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "kpd/gradient/stream_info.h"
#include "kpd/train/federate.h"
#include "train/codec_run.h"

namespace kpd::train {

class RemoteRanks {
 public:
  RemoteRanks(comm::Exchange& exchange, const ServerOptions& server, uint64_t settings_hash);
  ~RemoteRanks();
  RemoteRanks(const RemoteRanks&) = delete;
  RemoteRanks& operator=(const RemoteRanks&) = delete;
  // Throws Error(kMismatch) naming a rank with other options, Error(kIo) for one that is silent or lost.
  void greet();
  void begin_run(uint64_t codec, uint64_t round, std::span<const float> client_model);
  // Between rounds: takes in who was silent and has sent all that it owed, and returns these. `round` rounds are done.
  std::vector<int> begin_round(uint64_t round, std::span<const float> client_model);
  // Deals out the clients at `slots` and sends the model. jobs() says to whom.
  void send_round(uint64_t round, std::span<const uint64_t> slots, std::span<const uint8_t> downlink);
  struct Job {
    uint64_t slot = 0;
    int rank = 0;
  };
  const std::vector<Job>& jobs() const { return jobs_; }
  // The rank of the first sender is lost, or silent: gives its senders among `left` to other ranks. Returns what became of it
  // (nothing where it was told before), in words; replaced(): whether there was another rank.
  std::string replace(std::span<gradient::Sender> left, bool silent);
  bool replaced() const { return replaced_; }
  bool play(CodecRun& run) { return run.serve_round(*this); }
  void end();
  // True if no rank is left that could train.
  bool all_lost() const;

  comm::Exchange& exchange() { return exchange_; }
  const ServerOptions& server() const { return server_; }

 private:
  struct Rank {
    bool in = true;           // it gets clients
    std::set<uint32_t> owed;  // tags of the updates that did not come in time
  };
  void send_all(const std::vector<uint8_t>& message);
  void send(int rank, std::vector<uint8_t> message);
  void take_in(int rank, std::span<const float> client_model);
  std::vector<int> present() const;  // ranks that get clients
  void show_life();
  comm::Exchange& exchange_;
  const ServerOptions server_;
  const uint64_t settings_hash_;
  std::vector<Rank> ranks_;
  std::vector<Job> jobs_;
  uint64_t codec_ = 0, round_ = 0;  // of the run, rounds done
  bool replaced_ = false;
  std::mutex sending_;  // send() is for one thread at a time
  std::condition_variable ended_;
  bool ending_ = false;
  std::thread life_;
};

// A training rank's side, until the server ends.
void follow(Federation& federation, const FederateCallbacks& callbacks, comm::Exchange& exchange, const ServerOptions& server,
            uint64_t settings_hash);

}  // namespace kpd::train
