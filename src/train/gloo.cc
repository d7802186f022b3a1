// train: c10d's Gloo process group as an engine (kpd/train/gloo.h). Two threads a peer, one sends, one receives; each message
// is a head of 16 bytes and its payload, in pieces. Gloo's own time-outs break all its connections, so waits are endless and
// time-outs are the inbox's.
#include "kpd/train/gloo.h"

#define USE_C10D_GLOO 1
#include <ATen/ops/from_blob.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <charconv>
#include <deque>
#include <iostream>
#include <new>
#include <span>
#include <thread>

#include "base/deadline.h"
#include "comm/inbox.h"
#include "comm/sigpipe.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"

namespace kpd::train {
namespace {

using Bytes = std::vector<uint8_t>;
using Group = c10d::ProcessGroupGloo;
using comm::Delivery;
using comm::Milliseconds;

constexpr size_t kHeadBytes = 16;
constexpr uint32_t kMessage = 0x314d504b;  // "KPM1"
constexpr uint32_t kGoodbye = 0x3142504b;  // "KPB1"
constexpr std::chrono::hours kEver{24 * 365};
constexpr std::chrono::seconds kGoodbyeWait{5};
// A payload travels in pieces, so that a receiver's memory grows with what has come, not with what a head announces.
constexpr size_t kPieceBytes = size_t{16} << 20;

at::Tensor tensor_of(std::span<uint8_t> bytes) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::TensorOptions().dtype(at::kByte));
}

class Gloo final : public comm::Exchange {
 public:
  Gloo(c10::intrusive_ptr<Group> group, const GlooOptions& options)
      : group_(std::move(group)), options_(options), inbox_(options.size, options.limits) {
    for (int r = 0; r < size(); ++r) peers_.push_back(r == rank() ? nullptr : std::make_unique<Peer>());
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      peer(r).sender = std::thread([this, r] { send_loop(r); });
      peer(r).receiver = std::thread([this, r] { receive_loop(r); });
    }
  }

  ~Gloo() override {
    const comm::NoSigpipe none;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& p : peers_) {
        if (p) p->queue.push_back({head(kGoodbye, 0, 0), {}});
      }
      changed_.notify_all();
    }
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kGoodbyeWait, [&] { return all_idle(); });
      closing_ = true;
      changed_.notify_all();
    }
    inbox_.close();
    for (const auto& p : peers_) {
      if (!p) continue;
      stop(*p);
      p->sender.join();
      p->receiver.join();
    }
  }

  std::string_view engine() const override { return "gloo"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  void send(int to, uint32_t tag, Bytes bytes) override {
    comm::check_send(to, rank(), size(), tag, bytes.size(), options_.limits);
    inbox_.count_sent(bytes.size());
    const std::lock_guard lock(mutex_);
    if (peer(to).gone) return;
    const uint64_t length = bytes.size();
    peer(to).queue.push_back({head(kMessage, tag, length), std::move(bytes)});
    changed_.notify_all();
  }
  Delivery receive(int from, uint32_t tag, Bytes& bytes, Milliseconds timeout) override {
    comm::check_receive(from, rank(), size());
    return inbox_.receive(from, tag, bytes, timeout);
  }
  bool lost(int peer) const override {
    comm::check_receive(peer, rank(), size());
    return inbox_.lost(peer);
  }
  bool flush(Milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline_after(timeout), [&] { return all_idle(); });
  }
  comm::Traffic traffic() const override { return inbox_.traffic(); }

 private:
  struct Item {
    Bytes head, payload;
  };
  struct Peer {
    std::thread sender, receiver;
    std::deque<Item> queue;
    bool busy = false;  // with what it took from the queue
    bool gone = false;
    c10::intrusive_ptr<c10d::Work> sending, receiving;
  };

  static Bytes head(uint32_t kind, uint32_t tag, uint64_t length) {
    Bytes b(kHeadBytes);
    store_u32(b.data(), kind);
    store_u32(b.data() + 4, tag);
    store_u64(b.data() + 8, length);
    return b;
  }
  Peer& peer(int r) { return *peers_[static_cast<size_t>(r)]; }
  // With mutex_ held.
  bool all_idle() const {
    for (const auto& p : peers_) {
      if (p && !p->gone && (p->busy || !p->queue.empty())) return false;
    }
    return true;
  }

  // Ends what a peer's threads wait for.
  void stop(Peer& p) {
    const std::lock_guard lock(mutex_);
    for (const auto& work : {p.sending, p.receiving}) {
      if (work) work->abort();
    }
  }

  // The peer is gone: what waits for it is thrown away.
  void lose(int r) {
    inbox_.lose(r);
    const std::lock_guard lock(mutex_);
    peer(r).gone = true;
    peer(r).queue.clear();
    changed_.notify_all();
  }

  // One buffer to or from a peer; false if the peer is gone or this rank ends.
  bool move(int r, std::span<uint8_t> bytes, bool out) {
    c10::intrusive_ptr<c10d::Work> work;
    try {
      std::vector<at::Tensor> tensors = {tensor_of(bytes)};
      {
        const std::lock_guard lock(mutex_);
        if (closing_) return false;
        work = out ? group_->send(tensors, r, 0) : group_->recv(tensors, r, 0);
        (out ? peer(r).sending : peer(r).receiving) = work;
      }
      const bool done = work->wait(std::chrono::duration_cast<Milliseconds>(kEver));
      const std::lock_guard lock(mutex_);
      (out ? peer(r).sending : peer(r).receiving).reset();
      return done && !closing_;
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      (out ? peer(r).sending : peer(r).receiving).reset();
      return false;
    }
  }

  void send_loop(int r) {
    Peer& p = peer(r);
    for (;;) {
      Item item;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closing_ || p.gone || !p.queue.empty(); });
        if (closing_ || p.gone) return;
        item = std::move(p.queue.front());
        p.queue.pop_front();
        p.busy = true;
      }
      bool sent = move(r, item.head, true);
      for (size_t at = 0; sent && at < item.payload.size(); at += kPieceBytes) {
        sent = move(r, std::span(item.payload).subspan(at, std::min(kPieceBytes, item.payload.size() - at)), true);
      }
      {
        const std::lock_guard lock(mutex_);
        p.busy = false;
        changed_.notify_all();
      }
      if (load_u32(item.head.data()) == kGoodbye) return;
      if (!sent) return lose(r);
    }
  }

  void receive_loop(int r) {
    for (;;) {
      Bytes h(kHeadBytes);
      if (!move(r, h, false)) return lose(r);
      const uint64_t length = load_u64(h.data() + 8);
      const uint32_t tag = load_u32(h.data() + 4);
      if (load_u32(h.data()) != kMessage || tag > comm::kMaxTag || length > options_.limits.max_message_bytes) return lose(r);
      if (!inbox_.reserve(r, length)) return;
      Bytes payload;
      if (!receive_payload(r, length, payload)) {
        inbox_.release(r, length);
        return lose(r);
      }
      inbox_.deliver(r, tag, std::move(payload));
    }
  }

  bool receive_payload(int r, uint64_t length, Bytes& payload) {
    try {
      payload.reserve(length);
      while (payload.size() < length) {
        const size_t at = payload.size(), n = std::min<size_t>(kPieceBytes, length - at);
        payload.resize(at + n);
        if (!move(r, std::span(payload).subspan(at, n), false)) return false;
      }
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  const c10::intrusive_ptr<Group> group_;
  const GlooOptions options_;
  comm::Inbox inbox_;
  std::mutex mutex_;  // of all below and the peers' queues
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Peer>> peers_;
  bool closing_ = false;
};

struct StorePlace {
  std::string file;  // else
  std::string host;
  uint16_t port = 0;
};

// "::1" of "[::1]", as addresses of IPv6 stand before a port.
std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

StorePlace parse_store(const std::string& store) {
  StorePlace place;
  if (store.starts_with("file:")) {
    place.file = store.substr(5);
    return place;
  }
  const size_t colon = store.rfind(':');
  const char* const last = store.data() + store.size();
  const bool good = store.starts_with("tcp:") && colon > 4 &&
                    std::from_chars(store.data() + colon + 1, last, place.port).ptr == last && place.port != 0;
  if (!good)
    fail(ErrorCode::kInvalidArgument, "store '", store,
         "': expected tcp:HOST:PORT (tcp:[::1]:PORT for an address of IPv6) or file:PATH, the same for all ranks");
  place.host = without_brackets(store.substr(4, colon - 4));
  return place;
}

c10::intrusive_ptr<c10d::Store> open_store(const GlooOptions& o, const StorePlace& place, Milliseconds timeout) {
  if (!place.file.empty()) return c10::make_intrusive<c10d::FileStore>(place.file, o.size);
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = o.rank == 0 && !o.store_is_served;
  options.numWorkers = static_cast<std::size_t>(o.size);
  options.waitWorkers = false;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(place.host, options);
}

// The first line of torch's texts, which go on for many with a stack.
std::string first_line(const char* text) {
  const std::string s(text);
  return s.substr(0, s.find('\n'));
}

[[noreturn]] void fail_to_meet(const GlooOptions& o, const std::string& why) {
  fail(ErrorCode::kIo, "gloo: rank ", o.rank, " of ", o.size, " cannot meet the others at ", o.store, ": ", why);
}

// Its waits are one after another, each with torch's own time-out, and one has none: for the answer of what listens at the
// store's port.
std::unique_ptr<Gloo> meet(const GlooOptions& o, const StorePlace& place) {
  const Milliseconds timeout = o.timeout * 9 / 10;  // so that torch says why, where it gives up at its first wait
  try {
    const auto store = c10::make_intrusive<c10d::PrefixStore>("kpd", open_store(o, place, timeout));
    store->setTimeout(timeout);
    const auto options = Group::Options::create(timeout);
    const std::string address = without_brackets(o.address);
    options->devices.push_back(address.empty() ? Group::createDefaultDevice() : Group::createDeviceForHostname(address));
    return std::make_unique<Gloo>(c10::make_intrusive<Group>(store, o.rank, o.size, options), o);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail_to_meet(o, first_line(e.what()));
  }
}

// What the thread that meets and the one that waits for it share.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false, given_up = false;
  std::unique_ptr<Gloo> met;
  std::exception_ptr error;
};

void run_meeting(Meeting& meeting, const GlooOptions& o, const StorePlace& place) {
  const comm::NoSigpipe none;  // also in all threads of torch and of the engine, which begin here
  std::unique_ptr<Gloo> met;
  std::exception_ptr error;
  try {
    met = meet(o, place);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(meeting.mutex);
  if (!meeting.given_up) meeting.met = std::move(met);
  meeting.error = error;
  meeting.over = true;
  meeting.changed.notify_all();
}

}  // namespace

std::unique_ptr<comm::Exchange> make_gloo(const GlooOptions& o) {
  if (o.size < 1 || o.rank < 0 || o.rank >= o.size) {
    fail(ErrorCode::kInvalidArgument, "rank ", o.rank, " of ", o.size, " ranks");
  }
  const StorePlace place = parse_store(o.store);
  if (o.silence_torch) {
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;
    std::cerr.rdbuf(nullptr);  // Gloo's own lines, of every try to connect
  }
  const auto meeting = std::make_shared<Meeting>();
  std::thread thread([meeting, o, place] { run_meeting(*meeting, o, place); });
  std::unique_lock lock(meeting->mutex);
  if (!meeting->changed.wait_until(lock, deadline_after(o.timeout), [&] { return meeting->over; })) {
    meeting->given_up = true;
    thread.detach();
    fail_to_meet(o, str("not all of them were there within ", static_cast<double>(o.timeout.count()) / 1000, " s"));
  }
  lock.unlock();
  thread.join();
  if (meeting->error) std::rethrow_exception(meeting->error);
  return std::move(meeting->met);
}

}  // namespace kpd::train
