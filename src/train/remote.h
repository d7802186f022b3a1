// train: what server and training ranks tell each other over an engine, beside models and updates. Private.
//
// All from the server, on one tag: greeting {magic, hash of the settings}, run {index of the codec, round, the clients' model
// where differences are sent}, round {number, the downlink's message}, end; and between them signs of life, for a rank gives up
// a server of which it hears nothing, while a test or a slow rank may take the server any time. A rank answers the greeting
// with its own. Updates have a tag a client (codec_run.h).
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

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
  void send_round(uint64_t round, std::span<const uint8_t> downlink);
  bool play(CodecRun& run) { return run.serve_round(*this); }
  void end();
  // True if no rank is left that could train.
  bool all_lost() const;

  comm::Exchange& exchange() { return exchange_; }
  const ServerOptions& server() const { return server_; }

 private:
  void send_all(const std::vector<uint8_t>& message);
  void show_life();
  comm::Exchange& exchange_;
  const ServerOptions server_;
  const uint64_t settings_hash_;
  std::mutex sending_;  // send() is for one thread at a time
  std::condition_variable ended_;
  bool ending_ = false;
  std::thread life_;
};

// A training rank's side, until the server ends.
void follow(Federation& federation, const FederateCallbacks& callbacks, comm::Exchange& exchange, const ServerOptions& server,
            uint64_t settings_hash);

}  // namespace kpd::train
