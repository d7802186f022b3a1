// gradient: what a stream says about itself: ids, codecs, tensors and where each of them lies.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kpd/base/limits.h"
#include "kpd/gradient/message.h"

namespace kpd::gradient {

// So many tensors in a row have this codec of the stream's table.
struct CodecRun {
  uint8_t codec = 0;
  uint64_t tensors = 0;
};
// What is coded as one vector.
struct UnitRecord {
  size_t tensor = 0;               // the first; of several, the others follow it in the manifest but not always directly
  size_t members = 1;              // how many tensors
  uint64_t count = 0;              // elements
  WireParams params;               // resolved
  uint64_t offset = 0, bytes = 0;  // of its segments (with their lengths) within the stream
};
struct TensorRecord {
  uint64_t count = 0;
  DType dtype = DType::kFloat32;
  uint8_t codec = 0;               // in the stream's table; what is by rule not coded by it (params) is said to have it too
  WireParams params;               // of its unit
  size_t unit = 0;                 // where it is coded,
  uint64_t start = 0;              // from this element of the unit
  uint64_t offset = 0, bytes = 0;  // of its unit; of the bytes its share by elements
};

struct StreamInfo {
  bool is_file = false;
  bool is_streamed = false;
  bool is_authenticated = false;  // the MAC field is there
  uint8_t major = 0, minor = 0;
  uint64_t header_bytes = 0, total_bytes = 0;
  uint32_t n_tensors = 0;
  MessageIds ids;              // of a file round and client only
  uint64_t manifest_hash = 0;  // both forms (computed for files)
  uint64_t seed = 0;           // file form
  FileMetadata metadata;       // file form
  std::array<uint8_t, 16> mac{};
  std::vector<WireParams> codecs;  // the stream's table, as it travels
  std::vector<CodecRun> runs;      // the codecs of all tensors
  Manifest manifest;               // of a file, or the one given
  // Empty for a message whose manifest was not given: only the manifest tells what lies where.
  std::vector<TensorRecord> tensors;
  std::vector<UnitRecord> units;
  uint64_t elements() const;
};

// Checks magic, version, lengths, checksum, manifest, codec table and where all segments lie against `limits` and the bytes
// that are there; decodes nothing. Of a message that needs the manifest both sides agreed on; without one only header and codec
// table are read. `name` is the file named in errors. Throws Error(kCorruptData | kUnsupported | kLimitExceeded), and
// Error(kMismatch) for a message about another manifest than the one given.
StreamInfo read_stream_info(std::span<const uint8_t> stream, std::string_view name = "message", const Limits& limits = {},
                            const Manifest* message_manifest = nullptr);

}  // namespace kpd::gradient
