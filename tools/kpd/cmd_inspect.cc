// tools: `kpd inspect`, what a compressed file or message says about itself (nothing is decoded), and what a model holds
// (inspect_model.cc).
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "files.h"
#include "inspect_model.h"
#include "kpd/base/hash.h"
#include "kpd/gradient/stream_info.h"
#include "progress.h"
#include "spec_text.h"

namespace kpd::tool {
namespace {

struct InspectArgs {
  CommonOptions common;
  std::string file, tensor;
};

double bits_per_number(uint64_t bytes, uint64_t elements) {
  return elements == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
}

// The codec it was given, or what it is by rule.
std::string codec_text(const gradient::StreamInfo& info, const gradient::TensorRecord& record) {
  const gradient::WireParams& given = info.codecs[record.codec];
  const bool by_rule = record.count < 64 || dtype_is_exact(record.dtype);
  return spec_text(by_rule ? record.params : given);
}

nlohmann::ordered_json tensor_json(const gradient::StreamInfo& info, size_t i) {
  const gradient::TensorRecord& record = info.tensors[i];
  nlohmann::ordered_json tensor;
  tensor["name"] = info.manifest[i].name;
  tensor["shape"] = info.manifest[i].shape;
  tensor["dtype"] = dtype_name(record.dtype);
  tensor["count"] = record.count;
  tensor["codec"] = codec_text(info, record);
  tensor["method"] = record.params.method;
  tensor["offset"] = record.offset;
  tensor["bytes"] = record.bytes;
  tensor["bits_per_number"] = bits_per_number(record.bytes, record.count);
  return tensor;
}

void print_json(const gradient::StreamInfo& info) {
  nlohmann::ordered_json object;
  object["form"] = info.is_file ? "file" : "message";
  object["streamed"] = info.is_streamed;
  object["version"] = fmt::format("{}.{}", info.major, info.minor);
  object["header_bytes"] = info.header_bytes;
  object["total_bytes"] = info.total_bytes;
  // A message does not say how many numbers it holds: its receiver knows.
  object["elements"] = info.is_file ? nlohmann::ordered_json(info.elements()) : nlohmann::ordered_json();
  object["bits_per_number"] =
      info.is_file ? nlohmann::ordered_json(bits_per_number(info.total_bytes, info.elements())) : nlohmann::ordered_json();
  object["codecs"] = nlohmann::ordered_json::array();
  for (const gradient::WireParams& params : info.codecs) object["codecs"].push_back(spec_text(params));
  object["n_tensors"] = info.n_tensors;
  object["manifest_hash"] = fmt::format("{:016x}", info.manifest_hash);
  if (info.is_file) {
    object["seed"] = info.seed;
    object["round"] = info.ids.round;
    object["client"] = info.ids.client;
    object["metadata"] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : info.metadata) object["metadata"][key] = value;
  } else {
    object["run"] = info.ids.run;
    object["round"] = info.ids.round;
    object["client"] = info.ids.client;
    object["base_model_hash"] = fmt::format("{:016x}", info.ids.base_model_hash);
    object["weight"] = info.ids.weight;
    object["mac"] = hex(info.mac);
  }
  object["tensors"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < info.tensors.size(); ++i) object["tensors"].push_back(tensor_json(info, i));
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_text(const std::string& path, const gradient::StreamInfo& info) {
  fmt::print("{}: kpd gradient {}, format {}.{}, {} bytes, header {} bytes\n", path,
             info.is_file ? "file" : (info.is_streamed ? "streamed message" : "message"), info.major, info.minor,
             info.total_bytes, info.header_bytes);
  std::vector<std::string> codecs;
  for (const gradient::WireParams& params : info.codecs) codecs.push_back(spec_text(params));
  if (info.is_file) {
    fmt::print("{} numbers in {} tensor{}, {:.4f} bits per number (all bytes), checksum ok\n", info.elements(), info.n_tensors,
               info.n_tensors == 1 ? "" : "s", bits_per_number(info.total_bytes, info.elements()));
    fmt::print("seed {}, round {}, client {}, manifest {:016x}\n", info.seed, info.ids.round, info.ids.client,
               info.manifest_hash);
    for (const auto& [key, value] : info.metadata) fmt::print("  metadata {}: {}\n", printable(key), printable(value));
  } else {
    fmt::print("{} tensor{}, checksum ok; how many numbers they hold only the receiver knows\n", info.n_tensors,
               info.n_tensors == 1 ? "" : "s");
    fmt::print("run {}, round {}, client {}, base model {:016x}, weight {}, manifest {:016x}\n", info.ids.run, info.ids.round,
               info.ids.client, info.ids.base_model_hash, info.ids.weight, info.manifest_hash);
    fmt::print("codec{} {}\n", codecs.size() == 1 ? "" : "s", fmt::join(codecs, ", "));
  }
  for (size_t i = 0; i < info.tensors.size(); ++i) {
    const gradient::TensorRecord& record = info.tensors[i];
    fmt::print("  {:<24} {:<8} {:>12} {:<16} {:>9.4f} bits  byte {:<10} {}\n", printable(info.manifest[i].name),
               dtype_name(record.dtype), record.count, fmt::format("[{}]", fmt::join(info.manifest[i].shape, ", ")),
               bits_per_number(record.bytes, record.count), record.offset, codec_text(info, record));
  }
}

int run_inspect(InspectArgs args) {
  require(args.file, "FILE", "");
  args.file = input_path(args.file);
  if (looks_like_model(args.file)) return inspect_model(args.file, args.tensor, args.common.json);
  io::MappedFile file = map_input(args.file);
  const std::string name = is_stream_name(args.file) ? "standard input" : args.file;
  if (holds_weights(file)) return inspect_weights(std::move(file), name, args.tensor, args.common.json);
  if (!args.tensor.empty()) usage("--tensor belongs to .safetensors files and models; ", args.file, " is none");
  std::optional<Progress> progress(std::in_place, "inspect", 0, "");  // the checksum reads all of it
  const gradient::StreamInfo info = gradient::read_stream_info(file.bytes(), args.file);
  progress.reset();
  if (args.common.json) {
    print_json(info);
  } else {
    print_text(args.file, info);
  }
  return kExitOk;
}

}  // namespace

Command inspect_command() {
  return {
      "inspect",
      "show what is in a compressed file, a message, a .safetensors file or a model",
      {"kpd mean --synthetic lognormal --dim 100000 --clients 1 --codec float32 --seed 1 --out gradient.npy",
       "kpd encode gradient.npy gradient.kpdg --codec eden:bits=2 --seed 1", "kpd inspect gradient.kpdg"},
      [](CLI::App& app) {
        auto args = std::make_shared<InspectArgs>();
        add_positional(
            app, "FILE", args->file,
            "a file made by `kpd encode`, a message, a .safetensors file, or a model: GGUF file or folder; or a pipe, or -");
        add(app, "--tensor", args->tensor, "NAME", "statistics of one tensor of a .safetensors file or a model");
        args->common.add_json(app);
        return [args] { return run_inspect(*args); };
      }};
}

}  // namespace kpd::tool
