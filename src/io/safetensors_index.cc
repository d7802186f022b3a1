// io: the index of a sharded model. Its file names come from the outside: none may lead out of the folder.
#include "io/safetensors_index.h"

#include <unordered_set>
#include <utility>

#include "kpd/base/error.h"
#include "io/json_events.h"
#include "io/text.h"

namespace kpd::io {
namespace {

constexpr size_t kMaxFileNameBytes = 255;
// Enough for any metadata that an index was seen with.
constexpr size_t kMaxDepth = 64;

class IndexEvents {
 public:
  IndexEvents(std::string_view file, const Limits& limits, const size_t& position)
      : file_(file), limits_(limits), position_(position) {}

  std::vector<ShardOfTensor> entries;
  bool has_map = false;

  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("true or false"); }
  bool number_integer(int64_t) { return scalar("a number"); }
  bool number_unsigned(uint64_t) { return scalar("a number"); }
  bool number_float(double, const std::string&) { return scalar("a number"); }
  bool binary(std::vector<uint8_t>&) { return scalar("binary data"); }

  bool string(std::string& v) {
    if (!in_map()) return scalar("text");
    check_shard(v);
    entries.back().shard = std::move(v);
    return true;
  }

  bool start_object(size_t) {
    if (in_map()) corrupt("an object in weight_map, expected the name of a file");
    open();
    return true;
  }

  bool start_array(size_t) {
    if (depth_ == 0 || in_map()) unexpected("an array");
    if (depth_ == 1 && map_next_) unexpected("an array");
    open();
    return true;
  }

  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& v) {
    if (depth_ == 1) {
      map_next_ = v == "weight_map";
      if (map_next_ && std::exchange(has_map, true)) corrupt("weight_map is given twice");
    } else if (in_map()) {
      if (v.size() > limits_.max_name_bytes) {
        limit(str("a name of ", v.size(), " bytes, the limit is ", limits_.max_name_bytes));
      }
      if (entries.size() == limits_.max_tensors) limit(str("more than ", limits_.max_tensors, " tensors"));
      if (!names_.insert(v).second) corrupt(str("tensor '", printable(v), "' is given twice"));
      entries.emplace_back().tensor = std::move(v);
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    fail_at(ErrorCode::kCorruptData, file_, position > 0 ? position - 1 : 0, "the index is not valid JSON here");
  }

 private:
  bool in_map() const { return in_map_ && depth_ == 2; }

  bool scalar(const char* what) {
    if (depth_ == 0 || in_map() || (depth_ == 1 && map_next_)) unexpected(what);
    return true;
  }

  void open() {
    if (++depth_ > kMaxDepth) limit(str("nested deeper than ", kMaxDepth));
    if (depth_ == 2) in_map_ = std::exchange(map_next_, false);
  }

  bool close() {
    if (depth_-- == 2) in_map_ = false;
    return true;
  }

  void check_shard(const std::string& v) const {
    if (v.empty() || v.size() > kMaxFileNameBytes || v == "." || v == ".." ||
        v.find_first_of(std::string("/\\\0", 3)) != std::string::npos) {
      corrupt(str("tensor '", printable(entries.back().tensor), "' is in file '", printable(v),
                  "', expected the name of a file in the same folder"));
    }
    if (v.size() < 13 || v.compare(v.size() - 12, 12, ".safetensors") != 0) {
      corrupt(
          str("tensor '", printable(entries.back().tensor), "' is in file '", printable(v), "', expected NAME.safetensors"));
    }
  }

  [[noreturn]] void corrupt(const std::string& text) const { fail_at(ErrorCode::kCorruptData, file_, position_, text); }
  [[noreturn]] void limit(const std::string& text) const { fail_at(ErrorCode::kLimitExceeded, file_, position_, text); }
  [[noreturn]] void unexpected(const char* what) const {
    corrupt(str(what, " in the index, expected ",
                in_map()      ? "the name of a file"
                : depth_ == 0 ? "an object with weight_map"
                              : "an object of file names for weight_map"));
  }

  std::string_view file_;
  const Limits& limits_;
  const size_t& position_;
  std::unordered_set<std::string> names_;
  size_t depth_ = 0;
  bool in_map_ = false, map_next_ = false;
};

}  // namespace

std::vector<ShardOfTensor> parse_safetensors_index(std::span<const uint8_t> bytes, std::string_view name,
                                                   const Limits& limits) {
  const std::string file = printable_path(name);
  if (bytes.size() > limits.max_header_bytes) {
    fail(ErrorCode::kLimitExceeded, file, ": an index of ", bytes.size(), " bytes, the limit is ", limits.max_header_bytes);
  }
  size_t position = 0;
  IndexEvents events(file, limits, position);
  read_json(bytes, position, events);
  if (!events.has_map) fail(ErrorCode::kCorruptData, file, ": the index has no weight_map, expected one");
  return std::move(events.entries);
}

}  // namespace kpd::io
