// transform: signs from a seed (see the header).
#include "kpd/transform/signs.h"

#include <algorithm>

#include "kernels/philox.h"
#include "kpd/base/error.h"

namespace kpd::transform {

void fill_signs(const Rotation& rotation, const SignName& name, std::span<uint32_t> signs) {
  if (signs.size() != rotation.n_sign_words()) {
    fail(ErrorCode::kInvalidArgument, "signs of a rotation of ", rotation.size(), " elements: room for ", signs.size(),
         " words, expected ", rotation.n_sign_words());
  }
  std::fill(signs.begin(), signs.end(), 0u);
  const uint64_t block = uint64_t{name.member} << 32 | name.group;
  rotation.for_each_sign_set(signs, [&](int round, int which, std::span<uint32_t> words) {
    const uint32_t set = static_cast<uint32_t>(2 * round + which);
    kernels::philox_fill(name.seed, 0, kSignWords + set, block, words.data(), words.size());
  });
}

}  // namespace kpd::transform
