// gradient: the methods EDEN is measured against, one accessor a method, for the registry only. Private.
//
// docs/methods/baselines.md holds the formulas and the byte layouts of their segments.
#pragma once

#include "gradient/segment_codec.h"

namespace kpd::gradient {

MethodEntry float32_entry();      // float32.cc
MethodEntry bf16_entry();         // float32.cc
MethodEntry exact_entry();        // float32.cc
MethodEntry drive_entry();        // drive.cc
MethodEntry drive_plus_entry();   // drive.cc
MethodEntry sq_entry();           // stochastic.cc
MethodEntry hadamard_sq_entry();  // stochastic.cc
MethodEntry kashin_sq_entry();    // kashin.cc
MethodEntry qsgd_entry();         // qsgd.cc
MethodEntry terngrad_entry();     // terngrad.cc
MethodEntry randk_entry();        // randk.cc

// Elements of `element_bytes` each, from or to the little-endian order of the wire.
void copy_exact(std::span<const uint8_t> src, size_t element_bytes, uint8_t* dst);

// Method ids of the wire; never reused.
enum MethodId : uint8_t {
  kFloat32Id = 0,
  kBf16Id = 1,
  kDriveId = 3,
  kDrivePlusId = 4,
  kSqId = 5,
  kHadamardSqId = 6,
  kKashinSqId = 7,
  kQsgdId = 8,
  kTernGradId = 9,
  kRandKId = 10,
  kExactId = 11,
};

}  // namespace kpd::gradient
