// llm: a checkpoint: what its files say the network is, the table of its tensors, and where their bytes lie. Models are made of
// it (model.h), whole or a layer at a time, and files are written from it (export.h).
#pragma once

#include <memory>
#include <string>

#include "kpd/base/limits.h"
#include "kpd/io/weights.h"
#include "kpd/llm/model_description.h"

namespace kpd::llm {

// Movable; thread-compatible; one that was moved from can only be destroyed or assigned to.
class Checkpoint {
 public:
  // A GGUF file, or a Hugging Face folder with config.json. Every tensor that the description asks for is found and its shape
  // checked here; nothing is read yet. Throws Error naming file, tensor and what was expected: an unknown architecture, a
  // missing tensor, a wrong shape, a tensor or a key that nothing reads and that may change results.
  static Checkpoint open(const std::string& path, const Limits& limits = {});
  // Of weights that were opened with OtherTensors::kKeep.
  explicit Checkpoint(io::Weights weights);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& name() const;  // the path as given
  const io::Weights& weights() const;
  // As the tensors say: a head of its own, biases, factors of the rotation.
  const ModelDescription& description() const;
  bool is_gguf() const;
  const std::string& configuration() const;  // config.json's text; empty of a GGUF file
  // Of a GGUF file; null of others.
  const std::shared_ptr<const io::GgufMetadata>& metadata() const;

  struct Parts;  // of the implementation
  Parts& parts() { return *parts_; }
  const Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace kpd::llm
