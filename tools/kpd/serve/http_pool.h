// tools: who gets a thread. A connection that waits for a request's first byte costs none; those whose request comes get one in
// turn, by client; and where all threads are taken, connections that keep theirs waiting for the network make room. It knows
// no HTTP.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "serve/http_connection.h"

namespace kpd::tool {

class HttpPool {
 public:
  using Make = std::function<std::unique_ptr<Connection>(int socket)>;
  // Answers one request on a thread of the pool; false: the connection ends. Does not throw.
  using Answer = std::function<bool(Connection&)>;
  HttpPool(const HttpLimits& limits, const std::atomic<bool>& stopping, Make make, Answer answer);
  ~HttpPool();
  HttpPool(const HttpPool&) = delete;
  HttpPool& operator=(const HttpPool&) = delete;

  // Takes connections of a socket that does not block until `stopping` is set, then waits for those that have a thread. Returns
  // 0, or the errno for which no connection can be taken any more.
  int run(int listener);

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    std::unique_ptr<Connection> connection;
    uint64_t order = 0;       // of their coming to wait
    Clock::time_point until;  // an idle one's end
  };
  // With connections that wait for a thread or have one.
  struct Client {
    std::deque<Held> ready;
    size_t n_working = 0;
  };
  using Clients = std::map<std::string, Client>;

  int take(int listener);
  bool make_room();
  void make_idle(Held held);
  void make_ready(Held held);
  void hire();
  void relieve();
  void drop_expired();
  Clients::iterator next();
  void work();
  void finish();

  const HttpLimits& limits_;
  const std::atomic<bool>& stopping_;
  const Make make_;
  const Answer answer_;
  const size_t max_open_;
  int epoll_ = -1;
  std::mutex mutex_;  // of all that follows
  std::condition_variable wake_;
  std::unordered_map<int, Held> idle_;  // by socket
  Clients clients_;                     // by address
  std::vector<Connection*> working_;
  size_t n_open_ = 0, n_ready_ = 0, n_free_ = 0;
  uint64_t order_ = 0;
  bool closing_ = false;
  Clock::time_point ready_until_;  // once closing
  std::vector<std::thread> threads_;
};

}  // namespace kpd::tool
