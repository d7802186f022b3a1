// train: what server and training ranks tell each other over an engine, beside models and updates. Private.
//
// All from the server, on one tag: greeting {magic, hash of the settings}, run {index of the codec, round, the clients' model
// where differences are sent}, round {number, the downlink's message}, end. A rank answers the greeting with its own. Updates
// have a tag a client (codec_run.h).
#pragma once

#include "kpd/train/federate.h"
#include "train/codec_run.h"

namespace kpd::train {

class RemoteRanks {
 public:
  RemoteRanks(comm::Exchange& exchange, const ServerOptions& server, uint64_t settings_hash);
  // Throws Error(kMismatch) naming a rank with other options, Error(kIo) for one that is silent or lost.
  void greet();
  void begin_run(uint64_t codec, uint64_t round, std::span<const float> client_model);
  bool play(CodecRun& run) { return run.serve_round(exchange_, server_); }
  void end();

 private:
  void send_all(const std::vector<uint8_t>& message);
  comm::Exchange& exchange_;
  const ServerOptions server_;
  const uint64_t settings_hash_;
};

// The message of a round.
std::vector<uint8_t> round_message(uint64_t round, std::span<const uint8_t> downlink);

// A training rank's side, until the server ends.
void follow(Federation& federation, const FederateCallbacks& callbacks, comm::Exchange& exchange, const ServerOptions& server,
            uint64_t settings_hash);

}  // namespace kpd::train
