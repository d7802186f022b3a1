// gradient: the rotation of one block (block_rotation.h).
#include "gradient/block_rotation.h"

namespace kpd::gradient {

BlockRotation::BlockRotation(size_t n, int rounds, const BlockKey& key, AlignedBuffer<uint32_t>& words) : plan_(n, rounds) {
  const size_t n_words = plan_.n_sign_words();
  if (words.size() < n_words) words.resize(n_words);
  plan_.for_each_sign_set(std::span(words.data(), n_words), [&](int round, int which, std::span<uint32_t> set) {
    random_words(key, which == 0 ? Purpose::kSigns : Purpose::kSecondSigns, static_cast<uint32_t>(round), 0, set);
  });
  signs_ = std::span(words.data(), n_words);
}

}  // namespace kpd::gradient
