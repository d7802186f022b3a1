// tests: the table of codecs that a stream begins with, from hostile bytes.
#include <gtest/gtest.h>

#include <vector>

#include "base/expect_error.h"
#include "gradient/baselines.h"
#include "gradient/stream_format.h"
#include "kpd/base/bytes.h"

namespace kpd::gradient {
namespace {

// Only eden has an entropy code that its rate may turn into a fixed one.
TEST(CodecTable, NoOtherMethodTakesTheFlagOfTheEntropyCode) {
  for (const uint8_t method : {kSqId, kHadamardSqId, kRandKId}) {
    const CodecTable table{{{.method = method, .log2_block = 12, .flags = kFlagEntropy, .rate = 1, .param = 7}}, {{0, 1}}};
    std::vector<uint8_t> bytes(codec_table_bytes(table));
    ByteWriter w(bytes);
    write_codec_table(w, table);
    ByteReader r(bytes, "hostile");
    CodecTable read;
    EXPECT_KPD_ERROR(kCorruptData, "flags 1", read_codec_table(r, 1, read));
  }
}

}  // namespace
}  // namespace kpd::gradient
