// python: what the files of kpd.llm share: work on a thread of its own, and a loaded model, of which one call at a time has the
// use.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <nanobind/nanobind.h>

#include "kpd/llm/llm.h"

namespace kpd::python {

using SharedTokenizer = std::shared_ptr<const text::Tokenizer>;

// Work on a thread of its own, begun by the constructor. What it throws leaves wait(). The thread never takes the GIL.
class Job {
 public:
  // work(job) is expected to end soon once job.cancelled() holds, and at once where job.dropped().
  explicit Job(std::function<void(Job&)> work);
  ~Job();  // drops it and waits
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // With the GIL, which is released while there is nothing to do. Returns when ready() holds, which is called under lock() by
  // the waiting thread, or the work is over. A signal that Python turns into an exception drops the work, waits for its end and
  // leaves as that exception.
  void wait_until(const std::function<bool()>& ready);
  void wait();  // for its end; throws what it threw
  void cancel() { cancelled_ = true; }
  void drop() { cancelled_ = dropped_ = true; }  // nobody asks for what is done already
  bool cancelled() const { return cancelled_; }
  bool dropped() const { return dropped_; }
  // For what the work and who waits for it share.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  void notify() { news_.notify_all(); }

 private:
  void join();

  const int process_;
  std::atomic<bool> cancelled_{false}, dropped_{false}, over_{false};
  std::mutex mutex_;
  std::condition_variable news_;
  std::exception_ptr error_;
  std::thread thread_;
};

struct LoadedModel {
  std::string path;
  llm::Model model;
  SharedTokenizer tokenizer;
  llm::SamplingDefaults sampling;
  std::atomic<bool> in_use{false};
};
using SharedModel = std::shared_ptr<LoadedModel>;

// The use of a model, for as long as it lives.
class Use {
 public:
  explicit Use(SharedModel model);  // throws Error(kInvalidArgument) if another has it
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  LoadedModel& model() const { return *model_; }

 private:
  SharedModel model_;
};

// Tokens of a prompt or text per step.
inline constexpr size_t kChunk = 512;

}  // namespace kpd::python
