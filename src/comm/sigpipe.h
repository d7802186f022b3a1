// comm: no SIGPIPE in an engine's threads. Private. A write to a peer that has gone is an error of that write, told as a lost
// peer; the signal, which by default ends the program without a word, stays as it is for everybody else's writes (a closed
// stdout). It goes to the thread that writes, and threads inherit what their maker blocks.
#pragma once

#include <csignal>
#include <ctime>

#include <pthread.h>

namespace kpd::comm {

// Blocks SIGPIPE in this thread while it lives; one that came meanwhile is taken out.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace kpd::comm
