// train: the checkpoint of a federated run (docs/format/checkpoint.md). Torch-free. What a reader gets is checked for form here
// and for fit (sizes, settings) by the caller; a file is untrusted like any other input.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kpd/base/limits.h"
#include "kpd/train/federate.h"
#include "train/server_optimizer.h"

namespace kpd::train {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// All that one codec's run carries from round to round.
struct RunState {
  std::string codec;
  uint64_t round = 0;  // rounds done
  std::vector<float> model;
  ServerState server;
  // Where the downlink sends differences, else empty: what the clients have, the bytes of every round's message and the round
  // each client last heard of.
  std::vector<float> client_model;
  std::vector<uint64_t> downlink_rounds;
  std::vector<uint64_t> heard;
  uint64_t uplink_bytes = 0, downlink_bytes = 0;
  uint64_t messages = 0;   // sent up
  uint64_t downloads = 0;  // clients that got a model
  uint64_t clients_ok = 0, dropped = 0, refused = 0;
  double norm2 = 0, error2 = 0;  // of the updates sent
  double seconds = 0;
  std::vector<Evaluation> evaluations;  // a file's are read without their codec
};

struct Checkpoint {
  Pairs settings;     // must be equal to continue
  Pairs environment;  // a difference is worth a warning
  std::vector<RunState> runs;
};

std::vector<uint8_t> serialise_checkpoint(const Checkpoint& checkpoint);
// Throws Error(kCorruptData | kUnsupported | kLimitExceeded) naming `name`, the byte and what was expected. Allocates no more
// than the bytes account for.
Checkpoint parse_checkpoint(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits = {});

// Written beside `path` and renamed when complete. Throws Error(kIo).
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);
Checkpoint read_checkpoint(const std::string& path);

}  // namespace kpd::train
