// train: the Shakespeare network of EDEN's experiments: the next character of a speaking role's text.
//
// Embedding of 8, two LSTM layers of 256 with one bias each, one output a symbol: 820,522 parameters at 90 symbols (86
// characters, pad, bos, eos, oov). Weights start as Keras starts them: embedding uniform in +-.05, Glorot uniform, recurrent
// weights orthogonal, biases 0 but 1 for the forget gate.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kpd/train/task.h"

namespace kpd::train {

inline constexpr uint32_t kSymbols = 90;
inline constexpr uint32_t kSequence = 80;              // characters a training example predicts
enum Symbol : uint8_t { kPad = 0, kBos, kEos, kOov };  // the characters follow

// The symbol of a character; kOov for one that is not among the 86 of the TensorFlow Federated vocabulary.
uint8_t symbol_of(char c);

// A client a line: {"client": "PLAY/ROLE", "text": "..."}; every role is a client and a text. Of each text the first four
// fifths are for training, the rest for testing. An example is kSequence + 1 symbols: of bos, the text's part, eos, cut into
// pieces that overlap in one symbol, the last padded.
struct TextData {
  std::vector<uint8_t> train, test;            // [examples, kSequence + 1] symbols
  std::vector<std::vector<uint32_t>> clients;  // the training examples of each
  uint64_t train_examples() const { return train.size() / (kSequence + 1); }
  uint64_t test_examples() const { return test.size() / (kSequence + 1); }
};

// At most `max_test` test examples, evenly spaced through all of them. Throws Error(kIo | kCorruptData) naming file and line.
TextData load_text_data(const std::string& path, uint64_t max_test = 2000);

// Accuracy counts characters, padding apart. Every client's examples are its own (Task::own_clients).
std::unique_ptr<Task> make_char_lstm(std::string name, TextData data);

}  // namespace kpd::train
