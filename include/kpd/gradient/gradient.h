// gradient: the stable face of the pillar. A program that includes this header and no other of include/kpd/gradient keeps
// compiling through all versions of one major number; what the headers below include for themselves may change.
//
// Here are codecs and policies, messages and files, packets, streaming, a server's round, averages between ranks, error
// feedback, synthetic vectors for measurements. The same in C, with an ABI of its own: kpd/gradient/kpd_gradient.h. Guide:
// docs/guide/gradient.md.
#pragma once

#include "kpd/base/cancel.h"            // IWYU pragma: export
#include "kpd/base/error.h"             // IWYU pragma: export
#include "kpd/gradient/aggregate.h"     // IWYU pragma: export
#include "kpd/gradient/aggregator.h"    // IWYU pragma: export
#include "kpd/gradient/codec.h"         // IWYU pragma: export
#include "kpd/gradient/codec_policy.h"  // IWYU pragma: export
#include "kpd/gradient/decoder.h"       // IWYU pragma: export
#include "kpd/gradient/feedback.h"      // IWYU pragma: export
#include "kpd/gradient/file_decoder.h"  // IWYU pragma: export
#include "kpd/gradient/message.h"       // IWYU pragma: export
#include "kpd/gradient/packets.h"       // IWYU pragma: export
#include "kpd/gradient/stream_info.h"   // IWYU pragma: export
#include "kpd/gradient/streaming.h"     // IWYU pragma: export
#include "kpd/gradient/synthetic.h"     // IWYU pragma: export
