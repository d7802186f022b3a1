#include "serve/http_pool.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

#include "kpd/base/error.h"

namespace kpd::tool {
namespace {

constexpr int kSliceMilliseconds = 100;  // how soon the end of the server, and of an idle connection's time, is seen
// What a client may keep a thread waiting before another may have it.
constexpr std::chrono::milliseconds kPatience{1000};
constexpr std::chrono::seconds kGrace{1};
constexpr size_t kIdle = 1024;         // connections open beside those that have threads
constexpr rlim_t kOtherHandles = 256;  // files of the model, and what else the process opens

// Errors of accept() that will come again for ever; all others are of one client, or of a moment without memory or handles.
bool is_lasting(int error) {
  return error == EBADF || error == EFAULT || error == EINVAL || error == ENOTSOCK || error == EOPNOTSUPP;
}

// How many connections may be open at once: as many as wanted, if the process may have the handles.
size_t room_for(size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t all = wanted + kOtherHandles;
  if (limit.rlim_cur < all) {
    limit.rlim_cur = std::min<rlim_t>(all, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= all) return wanted;
  return std::max<size_t>(limit.rlim_cur - std::min(limit.rlim_cur, kOtherHandles), 16);
}

}  // namespace

HttpPool::HttpPool(const HttpLimits& limits, const std::atomic<bool>& stopping, Make make, Answer answer)
    : limits_(limits),
      stopping_(stopping),
      make_(std::move(make)),
      answer_(std::move(answer)),
      max_open_(room_for(limits.connections + kIdle)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  working_.reserve(limits.connections);
  if (epoll_ < 0) fail(ErrorCode::kIo, "cannot wait for connections: ", std::generic_category().message(errno));
}

HttpPool::~HttpPool() {
  finish();
  close(epoll_);
}

int HttpPool::run(int listener) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, listener, &event) != 0) return errno;
  int error = 0;
  while (!stopping_.load() && error == 0) {
    epoll_event events[64];
    const int n = epoll_wait(epoll_, events, 64, kSliceMilliseconds);
    bool comes = false;
    {
      const std::lock_guard lock(mutex_);
      for (int i = 0; i < n; ++i) {
        if (events[i].data.fd == listener) {
          comes = true;
        } else if (const auto it = idle_.find(events[i].data.fd); it != idle_.end()) {
          Held held = std::move(it->second);
          idle_.erase(it);
          epoll_ctl(epoll_, EPOLL_CTL_DEL, held.connection->socket(), nullptr);
          make_ready(std::move(held));
        }
      }
    }
    try {
      if (comes) error = take(listener);
      const std::lock_guard lock(mutex_);
      drop_expired();
      hire();
      relieve();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the listener is asked again
    }
  }
  epoll_ctl(epoll_, EPOLL_CTL_DEL, listener, nullptr);
  finish();
  return error;
}

// Some of the connections that wait to be taken; the others come with the next round.
int HttpPool::take(int listener) {
  for (int i = 0; i < 64; ++i) {
    {
      const std::lock_guard lock(mutex_);
      if (n_open_ >= max_open_ && !make_room()) break;
    }
    const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) {
      std::unique_ptr<Connection> connection;
      try {
        connection = make_(socket);
      } catch (const std::bad_alloc&) {
        close(socket);  // a moment without memory is this client's alone, here and below
        continue;
      }
      const std::lock_guard lock(mutex_);
      ++n_open_;
      make_idle({std::move(connection), ++order_, Clock::now() + std::chrono::seconds(limits_.keep_alive_seconds)});
      continue;
    }
    if (is_lasting(errno)) return errno;
    if (errno == EAGAIN) return 0;
    if (errno == EMFILE || errno == ENFILE) {
      const std::lock_guard lock(mutex_);
      if (!make_room()) break;
    }
  }
  // The listener stays readable: without room for one more it would be asked again at once.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return 0;
}

// Ends the longest idle connection of the client that has most of them. False: none is idle.
bool HttpPool::make_room() {
  std::map<std::string, size_t> counts;
  size_t most = 0;
  for (const auto& [socket, held] : idle_) most = std::max(most, ++counts[held.connection->client()]);
  auto oldest = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (counts[it->second.connection->client()] != most) continue;
    if (oldest == idle_.end() || it->second.order < oldest->second.order) oldest = it;
  }
  if (oldest == idle_.end()) return false;
  idle_.erase(oldest);
  --n_open_;
  return true;
}

void HttpPool::make_idle(Held held) {
  const int socket = held.connection->socket();
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
  event.data.fd = socket;
  try {
    Held& place = idle_[socket];
    if (!closing_ && epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) == 0) {
      place = std::move(held);
      return;
    }
    idle_.erase(socket);
  } catch (const std::bad_alloc&) {
  }
  --n_open_;
}

void HttpPool::make_ready(Held held) {
  held.order = ++order_;
  const std::string& name = held.connection->client();
  Clients::iterator client = clients_.end();
  try {
    client = clients_.try_emplace(name).first;
    client->second.ready.push_back(std::move(held));
  } catch (const std::bad_alloc&) {
    --n_open_;
    if (client != clients_.end() && client->second.ready.empty() && client->second.n_working == 0) clients_.erase(client);
    return;
  }
  ++n_ready_;
  hire();
  wake_.notify_one();
}

// A thread more where one is wanted. A system that gives none is asked again later.
void HttpPool::hire() {
  while (!closing_ && n_ready_ > n_free_ && threads_.size() < limits_.connections) {
    try {
      threads_.emplace_back([this] { work(); });
      ++n_free_;
    } catch (const std::system_error&) {
      return;
    } catch (const std::bad_alloc&) {
      return;
    }
  }
}

// Who has most threads gives up those that have waited longest for the network, one for each connection that waits for a
// thread.
void HttpPool::relieve() {
  if (n_ready_ == 0 || n_free_ > 0) return;
  size_t most = 0;
  for (const auto& [name, client] : clients_) most = std::max(most, client.n_working);
  std::vector<std::pair<std::chrono::milliseconds, Connection*>> stalled;
  for (Connection* c : working_) {
    if (clients_.at(c->client()).n_working != most || c->is_cut()) continue;
    if (const auto blocked = c->blocked(); blocked >= kPatience) stalled.emplace_back(blocked, c);
  }
  const size_t n = std::min(n_ready_, stalled.size());
  std::partial_sort(stalled.begin(), stalled.begin() + static_cast<std::ptrdiff_t>(n), stalled.end(), std::greater<>());
  for (size_t i = 0; i < n; ++i) stalled[i].second->cut();
}

void HttpPool::drop_expired() {
  const Clock::time_point now = Clock::now();
  n_open_ -= std::erase_if(idle_, [&](const auto& entry) { return entry.second.until < now; });
}

// Of the clients with the fewest threads that whose connection has waited longest.
HttpPool::Clients::iterator HttpPool::next() {
  auto chosen = clients_.end();
  for (auto it = clients_.begin(); it != clients_.end(); ++it) {
    if (it->second.ready.empty()) continue;
    const auto rank = [](const Client& c) { return std::pair(c.n_working, c.ready.front().order); };
    if (chosen == clients_.end() || rank(it->second) < rank(chosen->second)) chosen = it;
  }
  return chosen;
}

void HttpPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return n_ready_ > 0 || closing_; });
    if (n_ready_ == 0) return;
    const auto client = next();
    Held held = std::move(client->second.ready.front());
    client->second.ready.pop_front();
    --n_ready_;
    bool goes_on = !closing_ || Clock::now() < ready_until_;
    if (goes_on) {
      --n_free_;
      ++client->second.n_working;
      working_.push_back(held.connection.get());
      lock.unlock();
      goes_on = answer_(*held.connection);
      lock.lock();
      ++n_free_;
      std::erase(working_, held.connection.get());
      --client->second.n_working;
    }
    if (client->second.n_working == 0 && client->second.ready.empty()) clients_.erase(client);
    if (!goes_on) {
      --n_open_;
      held.connection.reset();
    } else if (held.connection->has_bytes()) {
      make_ready(std::move(held));  // behind the others: a client that sends many at once takes its turn
    } else {
      held.order = ++order_;
      held.until = Clock::now() + std::chrono::seconds(limits_.keep_alive_seconds);
      make_idle(std::move(held));
    }
  }
}

void HttpPool::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (!closing_) ready_until_ = Clock::now() + kGrace;
    closing_ = true;
    n_open_ -= idle_.size();
    idle_.clear();
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace kpd::tool
