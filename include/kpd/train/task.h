// train: what the federated loop needs to know of a network and its data. No libtorch type appears here: a task that uses
// libtorch hides it behind this interface, and the loop, the server and the checkpoints are tested without it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kpd/base/rng.h"
#include "kpd/gradient/message.h"

namespace kpd::train {

// Sums over test examples.
struct TestSum {
  uint64_t examples = 0;
  uint64_t correct = 0;
  double loss = 0;
};

// One copy of the network, used by one thread at a time.
class Worker {
 public:
  virtual ~Worker() = default;
  // The model: all tensors of the manifest one behind another. The caller writes a model here before step() and evaluate() and
  // reads the trained one from here.
  virtual std::span<float> parameters() = 0;
  // One step of SGD on training examples `batch` (at least one): parameters -= rate * gradient of their mean loss. Dropout
  // draws from `random` only. Returns the mean loss before the step. The result depends on nothing else, in particular not on
  // other workers.
  virtual double step(std::span<const uint32_t> batch, float rate, CounterRng& random) = 0;
  // Test examples [first, first + count), without dropout.
  virtual TestSum evaluate(uint64_t first, uint64_t count) = 0;
};

class Task {
 public:
  virtual ~Task() = default;
  virtual const std::string& name() const = 0;
  // Names and shapes of the parameters, all float32.
  virtual const gradient::Manifest& manifest() const = 0;
  // The class of every training example, each < classes().
  virtual std::span<const uint8_t> train_labels() const = 0;
  virtual uint32_t classes() const = 0;
  // Where the data says who has which training examples (speaking roles, writers): the examples of each client. Empty: any
  // split will do.
  virtual std::span<const std::vector<uint32_t>> own_clients() const { return {}; }
  virtual uint64_t test_examples() const = 0;
  // A hash of the data, so that a checkpoint is not continued on another set.
  virtual uint64_t data_hash() const = 0;
  // Draws the initial model from `seed`.
  virtual void initialise(uint64_t seed, std::span<float> model) const = 0;
  // The task must outlive its workers. Workers of one task may be used by different threads at the same time.
  virtual std::unique_ptr<Worker> make_worker() const = 0;
  // Names and values of what besides seed and options decides the last bits of a result: machine type, versions of libraries.
  virtual std::vector<std::pair<std::string, std::string>> environment() const = 0;
};

}  // namespace kpd::train
