// A client sends its update in one bit a number; the server adds it to the average. Public headers only.
#include <cstdio>
#include <span>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/base/rng.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/decoder.h"

int main() {
  using namespace kpd::gradient;
  // Both sides agree on these once.
  const Manifest manifest = {{"conv.weight", kpd::DType::kFloat32, {64, 32, 3, 3}}, {"conv.bias", kpd::DType::kFloat32, {64}}};
  const RunSecret secret = RunSecret::from_seed(42);
  const MessageIds ids = {.run = 7, .round = 1, .client = 3};

  // The client.
  std::vector<float> weight(manifest[0].count()), bias(manifest[1].count());
  kpd::CounterRng rng(1);
  for (float& v : weight) v = static_cast<float>(rng.next_normal());
  for (float& v : bias) v = static_cast<float>(rng.next_normal());
  Encoder encoder(manifest, Codec::parse("eden:bits=1"), secret);
  std::vector<uint8_t> message(encoder.max_bytes());
  const std::vector<kpd::TensorView> tensors = {std::span<const float>(weight), std::span<const float>(bias)};
  EncodeReport report;
  message.resize(encoder.encode_message(tensors, ids, message, &report));
  std::printf("%llu numbers in %zu bytes, squared error %.3f of their square\n",
              static_cast<unsigned long long>(report.elements), message.size(), report.vnmse());

  // The server: refuses any message but the one it expects, else acc += weight * decoded.
  std::vector<float> weight_sum(weight.size()), bias_sum(bias.size());
  const std::vector<std::span<float>> acc = {weight_sum, bias_sum};
  Decoder decoder(manifest, secret);
  try {
    decoder.decode_add(message, ids, 1.0f, acc);
  } catch (const kpd::Error& error) {
    std::fprintf(stderr, "refused: %s\n", error.what());
    return 1;
  }
  double dot = 0, norm2 = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    dot += static_cast<double>(weight[i]) * static_cast<double>(weight_sum[i]);
    norm2 += static_cast<double>(weight[i]) * static_cast<double>(weight[i]);
  }
  std::printf("<x, decoded> is %.6f of <x, x>\n", dot / norm2);
  return 0;
}
