// io: which files a model's path stands for, and their tensors as one list.
#include "kpd/io/weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "kpd/io/safetensors.h"
#include "io/safetensors_index.h"
#include "io/text.h"

namespace kpd::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kExpected =
    "expected a GGUF file, a .safetensors file, or a folder with model.safetensors, model.safetensors.index.json or one .gguf";

struct Parts {
  OtherTensors policy = OtherTensors::kRefuse;
  std::vector<MappedFile> files;
  std::vector<WeightEntry> tensors;
  std::vector<SafetensorsRecord> others;
  std::shared_ptr<const GgufMetadata> gguf;
};

// Kernels read weights where they lie: in a type that they know, aligned to it. None of another, which is refused unless others
// are kept.
std::optional<BlockType> block_type_of(const SafetensorsRecord& tensor, const std::string& path, OtherTensors policy) {
  const bool keep = policy == OtherTensors::kKeep;
  if (tensor.dtype != DType::kFloat32 && tensor.dtype != DType::kFloat16 && tensor.dtype != DType::kBFloat16) {
    if (keep) return std::nullopt;
    fail(ErrorCode::kUnsupported, printable_path(path), ": tensor '", printable(tensor.name), "' has elements of type ",
         tensor.dtype ? std::string(dtype_name(*tensor.dtype)) : printable(tensor.type),
         ", expected F32, F16 or BF16; convert or leave it out before saving");
  }
  if (reinterpret_cast<uintptr_t>(tensor.bytes.data()) % dtype_bytes(*tensor.dtype) != 0) {
    if (keep) return std::nullopt;
    fail(ErrorCode::kUnsupported, printable_path(path), ": tensor '", printable(tensor.name),
         "' is not aligned to its elements; save it again with the safetensors library");
  }
  return tensor.dtype == DType::kFloat32   ? BlockType::kF32
         : tensor.dtype == DType::kFloat16 ? BlockType::kF16
                                           : BlockType::kBF16;
}

bool has_extension(const fs::path& path, std::string_view extension) { return path.extension().string() == extension; }

void add_gguf(MappedFile file, const std::string& path, const Limits& limits, Parts& parts) {
  GgufFile parsed = parse_gguf(file.bytes(), path, limits);
  if (parsed.metadata.find("split.count") != nullptr && parsed.metadata.number("split.count") > 1) {
    fail(ErrorCode::kUnsupported, printable_path(path), ": one of ", parsed.metadata.number("split.count"),
         " parts of a model, expected a whole GGUF file; join them with llama-gguf-split --merge");
  }
  parts.tensors = std::move(parsed.tensors);
  parts.gguf = std::make_shared<const GgufMetadata>(std::move(parsed.metadata));
  parts.files.push_back(std::move(file));
}

void add_safetensors(MappedFile file, const std::string& path, const Limits& limits, Parts& parts) {
  for (SafetensorsRecord& tensor : list_safetensors(file.bytes(), path, limits)) {
    const std::optional<BlockType> type = block_type_of(tensor, path, parts.policy);
    if (type) {
      parts.tensors.push_back({std::move(tensor.name), *type, std::move(tensor.shape), tensor.bytes});
    } else {
      parts.others.push_back(std::move(tensor));
    }
  }
  parts.files.push_back(std::move(file));
}

void add_file(const std::string& path, const Limits& limits, Parts& parts) {
  MappedFile file = map_file(path, Handle::kKeep);
  if (looks_like_gguf(file.bytes())) {
    add_gguf(std::move(file), path, limits, parts);
  } else if (has_extension(path, ".gguf")) {
    fail_at(ErrorCode::kCorruptData, printable_path(path), 0, "expected the magic bytes of a GGUF file ('GGUF')");
  } else if (has_extension(path, ".safetensors") || looks_like_safetensors(file.bytes())) {
    add_safetensors(std::move(file), path, limits, parts);
  } else {
    fail(ErrorCode::kUnsupported, printable_path(path), ": not the weights of a model, ", kExpected);
  }
}

// The shards that the index names, each once, in the order in which it names them first. Whatever tensor a shard holds is
// taken; what the map says of one must be true.
void add_shards(const fs::path& folder, const Limits& limits, Parts& parts) {
  const std::string index_path = (folder / kIndex).string(), index_name = printable_path(index_path);
  const MappedFile index = map_file(index_path);
  const std::vector<ShardOfTensor> map = parse_safetensors_index(index.bytes(), index_path, limits);
  std::unordered_map<std::string_view, size_t> shards;  // name to its place in parts.files
  std::unordered_map<std::string, size_t> held;         // tensor to its shard
  uint64_t elements = 0;
  for (const ShardOfTensor& entry : map) {
    if (!shards.emplace(entry.shard, shards.size()).second) continue;
    const std::string path = (folder / entry.shard).string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      fail(ErrorCode::kIo, index_name, ": file '", printable(entry.shard), "' of tensor '", printable(entry.tensor),
           "' is missing, expected it in the same folder");
    }
    const size_t before = parts.tensors.size(), others_before = parts.others.size();
    add_safetensors(map_file(path, Handle::kKeep), path, limits, parts);
    const auto hold = [&](const auto& tensor) {
      const auto [it, fresh] = held.emplace(tensor.name, parts.files.size() - 1);
      if (!fresh) {
        fail(ErrorCode::kCorruptData, printable_path(path), ": tensor '", printable(tensor.name), "' is also in '",
             printable_path(parts.files[it->second].name()), "', expected it once");
      }
      elements += tensor.count();
    };
    for (size_t i = before; i < parts.tensors.size(); ++i) hold(parts.tensors[i]);
    for (size_t i = others_before; i < parts.others.size(); ++i) hold(parts.others[i]);
    if (held.size() > limits.max_tensors || elements > limits.max_total_elements) {
      fail(ErrorCode::kLimitExceeded, index_name, ": the shards hold ", held.size(), " tensors of ", elements,
           " elements, the limits are ", limits.max_tensors, " and ", limits.max_total_elements);
    }
  }
  for (const ShardOfTensor& entry : map) {
    const auto it = held.find(entry.tensor);
    if (it == held.end() || it->second != shards.at(entry.shard)) {
      fail(ErrorCode::kCorruptData, index_name, ": tensor '", printable(entry.tensor), "' is not in '", printable(entry.shard),
           "', expected it there");
    }
  }
}

void add_folder(const fs::path& folder, const Limits& limits, Parts& parts) {
  std::error_code error;
  if (fs::exists(folder / kWhole, error)) return add_file((folder / kWhole).string(), limits, parts);
  if (fs::exists(folder / kIndex, error)) return add_shards(folder, limits, parts);
  std::vector<std::string> ggufs;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (has_extension(it->path(), ".gguf")) ggufs.push_back(it->path().string());
  }
  const std::string name = printable_path(folder.string());
  if (error) fail(ErrorCode::kIo, name, ": cannot list the folder: ", error.message());
  if (ggufs.size() > 1) {
    std::sort(ggufs.begin(), ggufs.end());
    fail(ErrorCode::kUnsupported, name, ": holds ", ggufs.size(), " GGUF files, expected one; name it, e.g. ",
         printable_path(ggufs[0]));
  }
  if (ggufs.empty()) fail(ErrorCode::kUnsupported, name, ": holds no weights of a model, ", kExpected);
  add_file(ggufs[0], limits, parts);
}

}  // namespace

uint64_t WeightEntry::count() const {
  uint64_t n = 1;
  for (const uint64_t dim : shape) n *= dim;
  return n;
}

Weights::Weights(std::string name, std::vector<MappedFile> files, std::vector<WeightEntry> tensors,
                 std::shared_ptr<const GgufMetadata> gguf, std::vector<SafetensorsRecord> others)
    : name_(std::move(name)),
      files_(std::move(files)),
      tensors_(std::move(tensors)),
      gguf_(std::move(gguf)),
      others_(std::move(others)) {
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

Weights Weights::open(const std::string& path, const Limits& limits, OtherTensors others) {
  Parts parts;
  parts.policy = others;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    add_folder(path, limits, parts);
  } else {
    add_file(path, limits, parts);
  }
  return {path, std::move(parts.files), std::move(parts.tensors), std::move(parts.gguf), std::move(parts.others)};
}

const WeightEntry* Weights::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

uint64_t Weights::bytes() const {
  uint64_t sum = 0;
  for (const WeightEntry& tensor : tensors_) sum += tensor.bytes.size();
  return sum;
}

void Weights::read(const uint8_t* from, std::span<uint8_t> to) const {
  const auto begin = reinterpret_cast<uintptr_t>(from);
  for (const MappedFile& file : files_) {
    const auto first = reinterpret_cast<uintptr_t>(file.bytes().data());
    if (begin >= first && begin + to.size() <= first + file.bytes().size()) return file.read(begin - first, to);
  }
  fail(ErrorCode::kInvalidArgument, name_, ": these bytes are none of its weights");
}

void Weights::drop_pages(const WeightEntry& tensor) const {
  if (tensor.bytes.empty()) return;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.bytes.data()), end = begin + tensor.bytes.size();
  // Memory that is not a file's would lose its content.
  const bool mapped = std::any_of(files_.begin(), files_.end(), [&](const MappedFile& file) {
    const auto first = reinterpret_cast<uintptr_t>(file.bytes().data());
    return begin >= first && end <= first + file.bytes().size();
  });
  if (!mapped) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  // Advice only: a refusal costs memory, not correctness.
  if (first < last) (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace kpd::io
