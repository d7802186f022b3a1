// gradient: the code of scatter-reduce-allgather's second hop. Private.
#pragma once

#include "kpd/gradient/codec.h"

namespace kpd::gradient {

// Bits for a second hop whose code errs by `factor` of what `codec` errs (as limit_vnmse says; where that has none, by the rule
// of high rates, half a bit a factor of two), at least the codec's own and at most `most`. `most` may be below the codec's own:
// then as many as the method takes. The codec's own where its spec has no bits to choose.
double second_hop_bits(const Codec& codec, double factor, double most);

}  // namespace kpd::gradient
