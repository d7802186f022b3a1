// base: a small persistent thread pool. Work is a list of independent tasks, so the number of threads never changes a result.
#pragma once

#include <cstddef>
#include <functional>

namespace kpd {

// Logical processors this process may use, at least 1: those of its affinity mask, and no more than its control groups give it
// time for (a container's CPU quota, rounded up; it is read at the first call).
int hardware_threads();

// Calls fn(task, worker) once for each task in [0, n_tasks) on up to n_threads threads (the caller is worker 0; worker <
// n_threads). n_threads <= 0 means hardware_threads(). Returns when all are done; the first exception thrown by a task is
// rethrown and tasks not yet started are skipped. Thread-safe; nested or concurrent calls run their tasks on the calling
// thread.
void parallel_for(size_t n_tasks, int n_threads, const std::function<void(size_t task, int worker)>& fn);

}  // namespace kpd
