// python: work of kpd.llm on threads of its own, see llm.h.
#include <sys/types.h>
#include <unistd.h>

#include <chrono>

#include "call.h"
#include "llm.h"

namespace nb = nanobind;

namespace kpd::python {
Job::Job(std::function<void(Job&)> work) : process_(getpid()) {
  thread_ = std::thread([this, work = std::move(work)] {
    try {
      work(*this);
    } catch (...) {
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    over_ = true;
    news_.notify_all();
  });
}

Job::~Job() {
  drop();
  if (process_ != getpid()) {  // a fork's child: there is no such thread to wait for
    new std::thread(std::move(thread_));
    return;
  }
  if (!thread_.joinable()) return;
  if (PyGILState_Check() != 0) {
    const nb::gil_scoped_release release;
    thread_.join();
  } else {
    thread_.join();
  }
}

void Job::join() {
  if (!thread_.joinable()) return;
  const nb::gil_scoped_release release;
  thread_.join();
}

void Job::wait_until(const std::function<bool()>& ready) {
  if (process_ != getpid()) fail(ErrorCode::kInvalidArgument, "stream: it was begun in another process, before a fork");
  while (true) {
    {
      const nb::gil_scoped_release release;
      std::unique_lock lock(mutex_);
      if (news_.wait_for(lock, kSignalPeriod, [&] { return over_.load() || ready(); })) return;
    }
    if (PyErr_CheckSignals() != 0) {
      drop();
      nb::python_error signal;  // takes the exception before anything else runs
      join();
      throw signal;
    }
  }
}

void Job::wait() {
  wait_until([] { return false; });
  join();
  if (error_) std::rethrow_exception(error_);
}

Use::Use(SharedModel model) : model_(std::move(model)) {
  if (model_->in_use.exchange(true)) {
    fail(ErrorCode::kInvalidArgument,
         "model: it is in use; another call, perhaps of another thread, or a stream that is neither "
         "exhausted nor closed has it");
  }
}
Use::~Use() { model_->in_use = false; }

}  // namespace kpd::python
