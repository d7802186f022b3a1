// tests: the streams of tests/golden: their names, specs and inputs, all from integer formulas (README.md in this folder).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kpd::gradient::golden {

// Inputs. a(i) = (7919 i^2 + 104729 i + 15485863 t + 12345) mod 65521 - 32760 for element i of tensor t.
enum class Fill : uint8_t {
  kMix,      // a(i) 2^-(12 + i mod 5)
  kFalling,  // a(i) 2^-(12 + i / 512): energies differ from block to block
  kSparse,   // 1, 253/256, then zeros
  kSpike,    // -3 in the middle, else zeros
  kZero,
  kTiny,  // a(i) 2^-149: denormals
  kHuge,  // a(i) 2^112: up to FLT_MAX / 2
};

struct GoldenTensor {
  uint64_t count = 0;
  Fill fill = Fill::kMix;
  int dtype = 0;  // a DType
};

// How the file is made of what encode_file or encode_message wrote.
enum class Edit : uint8_t {
  kNone,
  kExtension,  // a header extension added; the encoder writes none
  kStreamed,   // a message, by begin_stream
  kPackets,    // a message in packets of 64 bytes of codes, every third lost: a count of parts (u32), then control part and
               // packets, each behind its length (u32)
};

struct GoldenCase {
  std::string name, spec;
  std::vector<GoldenTensor> tensors;
  bool message = false;
  uint64_t seed = 1;  // of a file; a message's run secret comes from kSecretSeed
  Edit edit = Edit::kNone;
};

inline constexpr uint64_t kSecretSeed = 42;

inline std::vector<GoldenTensor> mixes(std::initializer_list<uint64_t> counts) {
  std::vector<GoldenTensor> out;
  for (const uint64_t n : counts) out.push_back({n});
  return out;
}

inline std::vector<GoldenCase> golden_cases() {
  const auto wide = mixes({64, 4096, 5000}), narrow = mixes({70, 1024, 1500}), many_blocks = mixes({9000});
  const std::vector<GoldenTensor> few = {{9000, Fill::kSparse}, {12288, Fill::kSpike}};
  const std::vector<GoldenTensor> edges = {{100, Fill::kZero}, {1000, Fill::kSparse}, {512, Fill::kSpike},
                                           {300, Fill::kTiny}, {300, Fill::kHuge},    {1024, Fill::kHuge}};
  return {
      {"float32", "float32", mixes({3, 0, 70})},
      {"bf16", "bf16", {{3}, {70}, {100, Fill::kHuge}}},
      {"short", "eden:bits=1", mixes({0, 1, 63, 64})},
      {"worked", "eden:bits=2", {{64}, {2, Fill::kSparse}}},  // section 15 of the page
      // eden, code=fixed
      {"eden-b1", "eden:bits=1", wide},
      {"eden-b2", "eden:bits=2", wide},
      {"eden-b3", "eden:bits=3,block=1024", narrow},
      {"eden-b4", "eden:bits=4,block=1024", narrow},
      {"eden-b5", "eden:bits=5,block=1024", narrow},
      {"eden-b6", "eden:bits=6,block=1024", narrow},
      {"eden-b7", "eden:bits=7,block=1024", narrow},
      {"eden-b8", "eden:bits=8,block=1024", narrow},
      {"eden-b1.5", "eden:bits=1.5", wide},
      {"eden-b6.7", "eden:bits=6.7,block=512", narrow},
      {"eden-b0.5", "eden:bits=0.5", wide},
      {"eden-b0.05", "eden:bits=0.05", wide},
      {"eden-b0.995", "eden:bits=0.995,block=64", many_blocks},  // below one bit, and yet all coordinates are kept
      {"eden-biased", "eden:bits=2,scale=biased", narrow},
      {"eden-norm", "eden:bits=0.7,scale=norm", narrow},
      {"eden-rounds1", "eden:bits=1,rounds=1", narrow},
      {"eden-rounds3", "eden:bits=2,rounds=3", narrow},
      {"eden-rounds6", "eden:bits=2,rounds=6", narrow},
      {"eden-three-rounds", "eden:bits=1", few},  // asked for by the blocks' scale words
      {"eden-block64", "eden:bits=1,block=64", many_blocks},
      {"eden-block16384", "eden:bits=0.5,block=16384", mixes({20000})},
      {"eden-allocate", "eden:bits=1.5,block=512,allocate=energy", {{9000, Fill::kFalling}, {70}}},
      {"eden-edges", "eden:bits=2,block=1024", edges},
      {"eden-edges-1", "eden:bits=1,block=256,rounds=1", edges},
      {"eden-types", "eden:bits=3", {{200, Fill::kMix, 1}, {200, Fill::kMix, 2}}},
      // eden, code=entropy
      {"entropy-b0.1", "eden:code=entropy,bits=0.1", wide},
      {"entropy-b0.5", "eden:code=entropy,bits=0.5", wide},
      {"entropy-b1", "eden:code=entropy,bits=1", wide},
      {"entropy-b1.5", "eden:code=entropy,bits=1.5", narrow},
      {"entropy-b2", "eden:code=entropy,bits=2", narrow},
      {"entropy-b3", "eden:code=entropy,bits=3", narrow},
      {"entropy-b4", "eden:code=entropy,bits=4,block=1024", narrow},
      {"entropy-b8", "eden:code=entropy,bits=8,block=1024", narrow},
      {"entropy-biased", "eden:code=entropy,bits=0.5,scale=biased,rounds=1", {{1500}, {512, Fill::kSpike}}},  // all indices 0
      {"entropy-norm", "eden:code=entropy,bits=2,scale=norm,rounds=1", narrow},
      {"entropy-escapes-b4", "eden:code=entropy,bits=4", mixes({8191}), false, 1},  // seeds with escapes
      {"entropy-escapes-b6", "eden:code=entropy,bits=6", mixes({8191}), false, 100},
      {"dither-escapes-b5", "eden:code=entropy,dither=shared,bits=5", mixes({8191}), false, 16},
      {"entropy-three-rounds", "eden:code=entropy,bits=2", few},
      {"entropy-block64", "eden:code=entropy,bits=2,block=64", many_blocks},
      {"entropy-edges", "eden:code=entropy,bits=1,block=256", edges},
      {"dither-b1", "eden:code=entropy,dither=shared,bits=1", wide},
      {"dither-b1.5", "eden:code=entropy,dither=shared,bits=1.5", narrow},
      {"dither-b4", "eden:code=entropy,dither=shared,bits=4", narrow},
      {"dither-b8", "eden:code=entropy,dither=shared,bits=8", narrow},
      {"dither-block64", "eden:code=entropy,dither=shared,bits=2,block=64", many_blocks},
      {"dither-edges", "eden:code=entropy,dither=shared,bits=2,block=256", edges},
      // The baselines
      {"drive", "drive", wide},
      {"drive-biased", "drive:scale=biased,block=256", narrow},
      {"drive+", "drive+", wide},
      {"drive+biased", "drive+:scale=biased,block=256,rounds=1", narrow},
      {"drive-edges", "drive:block=256", edges},
      {"drive+edges", "drive+:block=256", edges},
      {"sq-b1", "sq:bits=1", narrow},
      {"sq-b2.5", "sq:bits=2.5,block=256", narrow},
      {"sq-b0.3", "sq:bits=0.3", narrow},
      {"sq-edges", "sq:bits=2,block=256", edges},
      {"hadamard-sq-b1", "hadamard-sq:bits=1", narrow},
      {"hadamard-sq-b3.5", "hadamard-sq:bits=3.5,block=256", narrow},
      {"hadamard-sq-b0.1", "hadamard-sq:bits=0.1", wide},
      {"hadamard-sq-edges", "hadamard-sq:bits=2,block=256", edges},
      {"kashin-sq-b2", "kashin-sq:bits=2", narrow},
      {"kashin-sq-b1", "kashin-sq:bits=1,iterations=4,block=256", narrow},
      {"kashin-sq-b5", "kashin-sq:bits=5,block=512", narrow},
      {"kashin-sq-edges", "kashin-sq:bits=2,block=256", edges},
      {"qsgd-b1", "qsgd:bits=1", wide},
      {"qsgd-b4", "qsgd:bits=4,block=128", narrow},
      {"qsgd-b8", "qsgd:bits=8", narrow},
      {"qsgd-edges", "qsgd:bits=4,block=256", edges},
      {"qsgd-max", "qsgd:bits=4,norm=max", narrow},
      {"qsgd-fixed-b2", "qsgd:bits=2,norm=max,code=fixed", wide},
      {"qsgd-fixed-b3", "qsgd:bits=3,norm=max,code=fixed,block=128", narrow},
      {"qsgd-fixed-b4", "qsgd:bits=4,norm=l2,code=fixed", narrow},
      {"qsgd-fixed-b6", "qsgd:bits=6,norm=max,code=fixed", narrow},
      {"qsgd-fixed-edges", "qsgd:bits=4,norm=max,code=fixed,block=256", edges},
      {"terngrad", "terngrad", wide},
      {"terngrad-clip", "terngrad:clip=2.5,block=256", narrow},
      {"terngrad-edges", "terngrad:block=256", edges},
      {"randk-b1", "randk:bits=1", wide},
      {"randk-b8", "randk:bits=8,block=256", narrow},
      {"randk-edges", "randk:bits=4,block=256", edges},
      // Messages: keys from ids
      {"message-eden", "eden:bits=1,block=1024", narrow, true},
      {"message-dither", "eden:code=entropy,dither=shared,bits=2,block=1024", narrow, true},
      {"message-qsgd", "qsgd:bits=4", narrow, true},
      {"streamed", "eden:code=entropy,bits=2,block=64", many_blocks, true, 1, Edit::kStreamed},
      {"packets-b2.3", "eden:bits=2.3,block=64", {{9000}, {70}, {10}, {100, Fill::kZero}}, true, 1, Edit::kPackets},
      {"packets-b0.5", "eden:bits=0.5,block=1024", wide, true, 1, Edit::kPackets},
      {"packets-entropy-b1", "eden:code=entropy,bits=1", wide, true, 1, Edit::kPackets},
      {"packets-entropy-b6", "eden:code=entropy,bits=6,block=256", narrow, true, 1, Edit::kPackets},
      // What the encoder does not write but a decoder reads
      {"extension", "eden:bits=1", mixes({100}), false, 1, Edit::kExtension},
      {"exact",
       "eden:bits=2",
       {{100},
        {5, Fill::kMix, 4},
        {6, Fill::kMix, 5},
        {7, Fill::kMix, 6},
        {8, Fill::kMix, 7},
        {9, Fill::kMix, 8},
        {5, Fill::kMix, 9},
        {6, Fill::kMix, 10},
        {7, Fill::kMix, 11},
        {9, Fill::kMix, 12},
        {70, Fill::kMix, 13},
        {70, Fill::kMix, 14},
        {90, Fill::kMix, 3}}},
      {"joined", "eden:bits=1", mixes({100, 63, 300, 4096, 64, 0, 1000})},
      {"joined-drive", "drive:block=256", mixes({100, 70, 300, 255})},
  };
}

}  // namespace kpd::gradient::golden
