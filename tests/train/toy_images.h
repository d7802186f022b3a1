// tests: 28x28 images whose class is the place of a bright square.
#pragma once

#include "kpd/train/image_cnn.h"

namespace kpd::train {

inline ImageSet toy_images(uint32_t count, uint32_t classes, uint64_t seed) {
  CounterRng random(seed);
  ImageSet set{28, 28, std::vector<uint8_t>(size_t{count} * 784), std::vector<uint8_t>(count)};
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t label = i % classes;
    set.labels[i] = static_cast<uint8_t>(label);
    for (uint32_t y = 0; y < 28; ++y) {
      for (uint32_t x = 0; x < 28; ++x) {
        const bool bright = y / 7 == label % 4 && x / 7 == label / 4 % 4;
        set.pixels[(size_t{i} * 28 + y) * 28 + x] = static_cast<uint8_t>((bright ? 150 : 0) + random.next_below(100));
      }
    }
  }
  return set;
}

}  // namespace kpd::train
