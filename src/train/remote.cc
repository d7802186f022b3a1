// train: server and training ranks over an engine (remote.h).
#include "train/remote.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::train {
namespace {

using Bytes = std::vector<uint8_t>;
using comm::Delivery;
using comm::Milliseconds;

enum Kind : uint8_t { kGreeting = 1, kRun, kRound, kMore, kEnd, kAlive };
constexpr uint32_t kMagic = 0x32465048;  // "HPF2"
constexpr Milliseconds kGreetingWait{120000};
constexpr Milliseconds kLongestWait = Milliseconds::max() / 2;
constexpr Milliseconds kPoll{200};
constexpr Milliseconds kMinLifeInterval{50}, kMaxLifeInterval{5000};

Bytes message_of(Kind kind, const std::vector<uint64_t>& numbers, std::span<const uint8_t> rest) {
  Bytes bytes(5 + 8 * numbers.size() + rest.size());
  ByteWriter w(bytes);
  w.u32(kMagic);
  w.u8(kind);
  for (const uint64_t n : numbers) w.u64(n);
  if (!rest.empty()) std::memcpy(bytes.data() + w.size(), rest.data(), rest.size());
  return bytes;
}

// Waits in short turns, so that a stop is seen.
Bytes receive_control(comm::Exchange& exchange, int from, Milliseconds timeout, const FederateCallbacks* callbacks) {
  Bytes bytes;
  for (Milliseconds waited{0};; waited += kPoll) {
    switch (exchange.receive(from, kControlTag, bytes, kPoll)) {
      case Delivery::kReceived:
        return bytes;
      case Delivery::kLost:
        fail(ErrorCode::kIo, from == 0 ? std::string("the server (rank 0)") : str("rank ", from), " was lost");
      case Delivery::kTimedOut:
        break;
    }
    if (callbacks != nullptr && callbacks->stopped && callbacks->stopped()) fail(ErrorCode::kCancelled, "interrupted");
    if (waited > timeout)
      fail(ErrorCode::kIo, "rank ", from, " did not answer within ", static_cast<double>(timeout.count()) / 1000, " s");
  }
}

Kind kind_of(ByteReader& r) {
  if (r.u32("magic") != kMagic) r.corrupt("not a message of kpd federate");
  return static_cast<Kind>(r.u8("kind"));
}

void check_greeting(const Bytes& bytes, int from, uint64_t settings_hash) {
  const std::string name = str("greeting of rank ", from);
  ByteReader r(bytes, name);
  if (kind_of(r) != kGreeting) r.corrupt("expected a greeting");
  if (r.u64("settings") != settings_hash) {
    fail(ErrorCode::kMismatch, "rank ", from,
         " was started with other options or other data (only --rounds, --threads and "
         "what is printed may differ)");
  }
}

std::vector<uint64_t> read_slots(ByteReader& r) {
  const uint64_t n = r.u64("clients");
  if (n > r.remaining() / 8) r.corrupt("a count of ", n, " clients, but only ", r.remaining(), " bytes are left");
  std::vector<uint64_t> slots(n);
  for (uint64_t& slot : slots) slot = r.u64("client");
  return slots;
}

}  // namespace

RemoteRanks::RemoteRanks(comm::Exchange& exchange, const ServerOptions& server, uint64_t settings_hash)
    : exchange_(exchange), server_(server), settings_hash_(settings_hash), ranks_(static_cast<size_t>(exchange.size())) {
  if (exchange.size() < 2) fail(ErrorCode::kInvalidArgument, "a server needs at least one rank that trains: 2 ranks or more");
}

RemoteRanks::~RemoteRanks() {
  {
    const std::lock_guard lock(sending_);
    ending_ = true;
    ended_.notify_all();
  }
  if (life_.joinable()) life_.join();
}

void RemoteRanks::show_life() {
  const Bytes alive = message_of(kAlive, {}, {});
  const Milliseconds interval = std::clamp(server_.timeout / 4, kMinLifeInterval, kMaxLifeInterval);
  std::unique_lock lock(sending_);
  while (!ended_.wait_for(lock, interval, [&] { return ending_; })) {
    try {
      for (int r = 1; r < exchange_.size(); ++r) exchange_.send(r, kControlTag, alive);
    } catch (const std::bad_alloc&) {
      // The next one may go out.
    }
  }
}

void RemoteRanks::send_all(const Bytes& message) {
  const std::lock_guard lock(sending_);
  for (int r = 1; r < exchange_.size(); ++r) exchange_.send(r, kControlTag, message);
}

void RemoteRanks::greet() {
  send_all(message_of(kGreeting, {settings_hash_}, {}));
  life_ = std::thread([this] { show_life(); });  // others may keep those that have greeted waiting
  for (int r = 1; r < exchange_.size(); ++r) {
    check_greeting(receive_control(exchange_, r, kGreetingWait, nullptr), r, settings_hash_);
  }
}

void RemoteRanks::send(int rank, Bytes message) {
  const std::lock_guard lock(sending_);
  exchange_.send(rank, kControlTag, std::move(message));
}

void RemoteRanks::take_in(int rank, std::span<const float> client_model) {
  ranks_[static_cast<size_t>(rank)].in = true;
  send(rank,
       message_of(kRun, {codec_, round_}, {reinterpret_cast<const uint8_t*>(client_model.data()), client_model.size_bytes()}));
}

std::vector<int> RemoteRanks::present() const {
  std::vector<int> ranks;
  for (int r = 1; r < exchange_.size(); ++r) {
    if (ranks_[static_cast<size_t>(r)].in && !exchange_.lost(r)) ranks.push_back(r);
  }
  return ranks;
}

void RemoteRanks::begin_run(uint64_t codec, uint64_t round, std::span<const float> client_model) {
  codec_ = codec;
  round_ = round;
  for (const int r : present()) take_in(r, client_model);
}

std::vector<int> RemoteRanks::begin_round(uint64_t round, std::span<const float> client_model) {
  round_ = round;
  Bytes late;
  std::vector<int> back;
  for (int r = 1; r < exchange_.size(); ++r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    // What came late is thrown away: other ranks' updates of the same clients are in the sum.
    std::erase_if(rank.owed,
                  [&](uint32_t tag) { return exchange_.receive(r, tag, late, Milliseconds(0)) == Delivery::kReceived; });
    if (rank.in || !rank.owed.empty() || exchange_.lost(r)) continue;
    take_in(r, client_model);
    back.push_back(r);
  }
  const bool nobody = present().empty();
  for (int r = 1; nobody && r < exchange_.size(); ++r) {
    if (exchange_.lost(r)) continue;
    ranks_[static_cast<size_t>(r)].owed.clear();  // what still comes is passed over as of another round
    take_in(r, client_model);
  }
  return back;
}

void RemoteRanks::send_round(uint64_t round, std::span<const uint64_t> slots, std::span<const uint8_t> downlink) {
  const std::vector<int> ranks = present();
  jobs_.clear();
  std::vector<std::vector<uint64_t>> numbers(ranks.size(), {round, 0});
  for (size_t i = 0; i < slots.size() && !ranks.empty(); ++i) {
    const size_t k = i % ranks.size();
    numbers[k].push_back(slots[i]);
    ++numbers[k][1];
    jobs_.push_back({slots[i], ranks[k]});
  }
  for (size_t k = 0; k < ranks.size(); ++k) send(ranks[k], message_of(kRound, numbers[k], downlink));
}

std::string RemoteRanks::replace(std::span<gradient::Sender> left, bool silent) {
  const int gone = left[0].rank;
  Rank& rank = ranks_[static_cast<size_t>(gone)];
  const bool known = !rank.in;
  rank.in = false;
  std::vector<gradient::Sender*> jobs;
  for (gradient::Sender& sender : left) {
    if (sender.rank != gone) continue;
    if (silent) rank.owed.insert(sender.tag);
    jobs.push_back(&sender);
  }
  const std::vector<int> others = present();
  replaced_ = !others.empty();
  const std::string what = str(gone, silent ? " sent nothing in time" : " is gone", ": ", jobs.size(), " of its clients ");
  if (!replaced_) return known ? "" : what + "have no other rank";
  std::vector<std::vector<uint64_t>> numbers(others.size(), {0});
  for (size_t i = 0; i < jobs.size(); ++i) {
    const size_t k = i % others.size();
    jobs[i]->rank = others[k];
    numbers[k].push_back(jobs[i]->tag - kUpdateTag);
    ++numbers[k][0];
  }
  for (size_t k = 0; k < others.size(); ++k) {
    if (numbers[k][0] > 0) send(others[k], message_of(kMore, numbers[k], {}));
  }
  return what + "are dealt out again";
}

bool RemoteRanks::all_lost() const {
  for (int r = 1; r < exchange_.size(); ++r) {
    if (!exchange_.lost(r)) return false;
  }
  return true;
}

void RemoteRanks::end() {
  send_all(message_of(kEnd, {}, {}));
  exchange_.flush(server_.timeout);
}

void follow(Federation& federation, const FederateCallbacks& callbacks, comm::Exchange& exchange, const ServerOptions& server,
            uint64_t settings_hash) {
  exchange.send(0, kControlTag, message_of(kGreeting, {settings_hash}, {}));
  check_greeting(receive_control(exchange, 0, kGreetingWait, &callbacks), 0, settings_hash);
  RunState state;
  std::unique_ptr<CodecRun> run;
  for (;;) {
    // Signs of life come four times in a time-out.
    const Bytes bytes = receive_control(exchange, 0, 2 * std::min(server.timeout, kLongestWait), &callbacks);
    ByteReader r(bytes, "message of the server");
    switch (kind_of(r)) {
      case kRun: {
        const uint64_t codec = r.u64("codec");
        const uint64_t round = r.u64("round");
        if (codec >= federation.options.codecs.size() || r.remaining() % 4 != 0) r.corrupt("no run of these options");
        std::vector<float> model(r.remaining() / 4);
        std::memcpy(model.data(), r.take(r.remaining(), "model").data(), 4 * model.size());
        run.reset();
        state = RunState();
        run = std::make_unique<CodecRun>(federation, federation.options.codecs[codec], state, callbacks);
        run->follow_from(round, model);
        break;
      }
      case kRound: {
        const uint64_t round = r.u64("round");
        if (!run) r.corrupt("a round before a run");
        const std::vector<uint64_t> slots = read_slots(r);
        run->follow_round(round, slots, r.take(r.remaining(), "model"), exchange);
        break;
      }
      case kMore:
        if (!run) r.corrupt("more of a round before a run");
        run->follow_more(read_slots(r), exchange);
        break;
      case kAlive:
        break;
      case kEnd:
        return;
      default:
        r.corrupt("unknown kind of message");
    }
  }
}

}  // namespace kpd::train
