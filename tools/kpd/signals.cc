// tools: Ctrl-C, SIGTERM and SIGHUP; see signals.h. The handler calls only what POSIX allows in one.
#include "signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "kpd/base/error.h"
#include "kpd/io/file.h"

namespace kpd::tool {
namespace {

std::atomic<int> g_deferred{0};
std::atomic<bool> g_second_ends{false};
std::atomic<int> g_signal{0};
std::atomic<int> g_wake_read{-1}, g_wake_write{-1};  // of interrupt_fd()
std::atomic<void (*)()> g_tidy{nullptr};
// Never freed: SIGTERM may come while the program ends, after the destructors of what has static storage.
std::atomic<const std::string*> g_explanation{nullptr};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<const std::string*>::is_always_lock_free && std::atomic<void (*)()>::is_always_lock_free);

void say(std::string_view text) {
  const ssize_t ignored = write(2, text.data(), text.size());
  static_cast<void>(ignored);
}

void wake() {
  const int fd = g_wake_write.load(), error = errno;
  if (fd < 0) return;
  const ssize_t ignored = write(fd, "!", 1);  // a full pipe is readable already
  static_cast<void>(ignored);
  errno = error;
}

void handle(int signal) {
  if (const std::string* const text = g_explanation.load(); signal == SIGTERM && text != nullptr) {
    say(*text);
    _exit(1);
  }
  const bool again = g_signal.exchange(signal) != 0;
  wake();
  if (g_deferred.load() > 0 && !(again && g_second_ends.load())) return;
  io::remove_unfinished_files();
  if (void (*const tidy)() = g_tidy.load()) tidy();
  say("\nkpd: interrupted\n");
  _exit(128 + signal);
}

std::atomic<bool> g_bus_error{false};

void handle_bus_error(int signal, siginfo_t* info, void*) {
  const char* file = info->si_code > 0 ? io::mapped_file_at(info->si_addr) : nullptr;
  if (file == nullptr) {
    // None of ours: ends the process as if nobody had asked.
    std::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  if (g_bus_error.exchange(true)) {
    for (;;) pause();  // another thread is saying it
  }
  io::remove_unfinished_files();
  char line[1200];
  size_t n = 0;
  for (const char* part : {"kpd: ", file, ": became shorter while it was read, or its disk fails\n"}) {
    const size_t length = std::strlen(part);
    std::memcpy(line + n, part, length);
    n += length;
  }
  say({line, n});
  _exit(1);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A terminal that closes is a Ctrl-C; where nohup or another parent had it ignored, it stays so.
  struct sigaction before = {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  // Beyond `ulimit -f` a write fails like one on a full disk, and what was written is removed.
  std::signal(SIGXFSZ, SIG_IGN);
  action.sa_handler = nullptr;
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

void explain_termination(const std::string& line) { g_explanation.store(new std::string(line + "\n")); }

bool interrupted() { return g_signal.load() != 0; }
int interrupt_signal() { return g_signal.load(); }

void check_interrupted() {
  if (interrupted()) fail(ErrorCode::kCancelled, "interrupted");
}

bool take_interrupt() {
  char drained[64];
  while (g_wake_read.load() >= 0 && read(g_wake_read.load(), drained, sizeof drained) > 0) {
  }
  int expected = SIGINT;
  return g_signal.compare_exchange_strong(expected, 0);
}

int interrupt_fd() {
  if (g_wake_read.load() < 0) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) fail(ErrorCode::kIo, "no pipe: ", std::strerror(errno));
    g_wake_read.store(ends[0]);
    g_wake_write.store(ends[1]);
  }
  return g_wake_read.load();
}

void before_forced_exit(void (*tidy)()) { g_tidy.store(tidy); }

DeferInterrupt::DeferInterrupt(bool second_ends) : second_ended_(g_second_ends.exchange(second_ends)) {
  g_deferred.fetch_add(1);
}
DeferInterrupt::~DeferInterrupt() {
  g_deferred.fetch_sub(1);
  g_second_ends.store(second_ended_);
}

}  // namespace kpd::tool
