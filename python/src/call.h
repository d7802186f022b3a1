// python: calls into the library without the GIL, which Ctrl-C ends, and objects that are for one call at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include <nanobind/nanobind.h>

#include "kpd/base/cancel.h"
#include "kpd/base/error.h"

namespace kpd::python {

using Clock = std::chrono::steady_clock;
inline constexpr auto kSignalPeriod = std::chrono::milliseconds(100);

// Runs fn() without the GIL. Signals are looked at ten times a second; where a handler raises, as Ctrl-C's does, the call ends
// with what it raised. (Python runs handlers in its main thread alone; in others there is nothing to see.)
template <class Fn>
void without_gil(const Fn& fn) {
  struct {
    Clock::time_point next;
    bool raised;
  } signals = {Clock::now() + kSignalPeriod, false};
  const auto look = [&signals] {
    if (Clock::now() < signals.next) return false;
    signals.next = Clock::now() + kSignalPeriod;
    const nanobind::gil_scoped_acquire acquire;
    signals.raised = PyErr_CheckSignals() != 0;
    return signals.raised;
  };
  try {
    const nanobind::gil_scoped_release release;
    const CancelScope scope(look);
    fn();
  } catch (const Error&) {
    if (signals.raised) throw nanobind::python_error();
    throw;
  }
}

// An object of the library that calls of several threads must not use at the same time. A second one is an error and does not
// wait: a thread that forks or handles a signal in the middle of a call could wait for itself.
template <class T>
class OneAtATime {
 public:
  template <class... Args>
  explicit OneAtATime(const char* name, Args&&... args) : name_(name), object_(std::in_place, std::forward<Args>(args)...) {}

  class Use {
   public:
    explicit Use(OneAtATime& owner) : owner_(owner) {
      if (owner.busy_.exchange(true))
        fail(ErrorCode::kInvalidArgument, owner.name_, ": is in use by another call; expected one for each thread");
      if (owner.object_) return;
      owner.busy_ = false;
      fail(ErrorCode::kInvalidArgument, owner.name_, ": is closed");
    }
    ~Use() { owner_.busy_ = false; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    T* operator->() const { return &*owner_.object_; }
    T& operator*() const { return *owner_.object_; }

   private:
    OneAtATime& owner_;
  };

  bool closed() const { return !object_.has_value(); }
  // Frees its memory; again and again without harm.
  void close() {
    if (closed()) return;
    { const Use use(*this); }
    object_.reset();
  }

 private:
  const char* name_;
  std::atomic<bool> busy_{false};
  std::optional<T> object_;
};

// `closed`, `close()` and the with-block of a class around one; close(self) frees what the object holds, again and again
// without harm.
template <class Py, class T, class Close>
void bind_life(nanobind::class_<Py>& bound, OneAtATime<T> Py::*object, const Close& close) {
  namespace nb = nanobind;
  bound.def_prop_ro("closed", [object](const Py& self) { return (self.*object).closed(); })
      .def(
          "close", [close](Py& self) { close(self); }, "Frees its memory; every other call is then an Error.")
      .def(
          "__enter__", [](nb::handle_t<Py> self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> typing_extensions.Self"))
      .def(
          "__exit__", [close](Py& self, nb::handle, nb::handle, nb::handle) { close(self); }, nb::arg("type").none(),
          nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: typing.Any, value: typing.Any, traceback: typing.Any) -> None"));
}

}  // namespace kpd::python
