// base: a small persistent thread pool. Work is a list of independent tasks, so the number of threads never changes a result.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace kpd {

// Logical processors this process may use, at least 1: those of its affinity mask, and no more than its control groups give it
// time for (a container's CPU quota, rounded down; it is read at the first call).
int hardware_threads();

// What parallel_for calls: refers to a callable without owning or copying it, so that nothing is allocated for what it
// captures.
class TaskRef {
 public:
  template <class Fn>
  requires(!std::same_as<std::remove_cvref_t<Fn>, TaskRef> && std::invocable<Fn&, size_t, int>)
      TaskRef(Fn&& fn)  // NOLINT(google-explicit-constructor): a lambda is passed as it is
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(fn)))),
        call_([](void* object, size_t task, int worker) {
          (*static_cast<std::remove_reference_t<Fn>*>(object))(task, worker);
        }) {}
  void operator()(size_t task, int worker) const { call_(object_, task, worker); }

 private:
  void* object_;
  void (*call_)(void*, size_t, int);
};

// Calls fn(task, worker) once for each task in [0, n_tasks) on up to n_threads threads (the caller is worker 0; worker <
// n_threads). n_threads <= 0 means hardware_threads(). Returns when all are done; the first exception thrown by a task is
// rethrown and tasks not yet started are skipped; so are they where a CancelScope of the caller (kpd/base/cancel.h) says so.
// Thread-safe; nested or concurrent calls run their tasks on the calling
// thread.
void parallel_for(size_t n_tasks, int n_threads, TaskRef fn);

}  // namespace kpd
