// tests: how the slow model of a cache stores a row of one head: by the definition of its type, sharing no code with the cache.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kpd::testing {

// Round to nearest even, by the definition of a binary format with so many bits of mantissa and exponent.
class NumberFormat {
 public:
  explicit NumberFormat(const std::string& name)
      : mantissa_(name == "f32"   ? 23
                  : name == "f16" ? 10
                                  : 7),
        least_(name == "f16" ? -14 : -126) {}

  size_t bytes() const { return mantissa_ == 23 ? 4 : 2; }
  uint32_t encode(float v) const {
    if (mantissa_ == 23) return std::bit_cast<uint32_t>(v);
    const uint32_t sign = std::signbit(v) ? 0x8000u : 0u;
    const double a = std::fabs(static_cast<double>(v));
    if (a == 0) return sign;
    int exponent = 0;
    std::frexp(a, &exponent);
    const int last = std::max(exponent - 1, least_) - mantissa_;  // weight of the last bit
    const double n = std::nearbyint(std::ldexp(a, -last));
    // The leading bit is not stored: n beyond it carries into the exponent, n below it leaves an exponent of zero.
    const int biased = last + mantissa_ - least_ + 1;
    return sign | static_cast<uint32_t>((biased << mantissa_) + static_cast<int>(n) - (1 << mantissa_));
  }
  double decode(uint32_t bits) const {
    if (mantissa_ == 23) return static_cast<double>(std::bit_cast<float>(bits));
    const int biased = static_cast<int>(bits & 0x7FFFu) >> mantissa_,
              fraction = static_cast<int>(bits & ((1u << mantissa_) - 1));
    const double a = biased == 0 ? std::ldexp(fraction, least_ - mantissa_)
                                 : std::ldexp(fraction + (1 << mantissa_), biased - 1 + least_ - mantissa_);
    return (bits & 0x8000u) != 0 ? -a : a;
  }

 private:
  int mantissa_, least_;  // least_: exponent of the smallest normal number
};

// One side (keys or values) of a layer: f32, f16, bf16, or one of ggml's types in blocks of 32; turned by Hadamard transforms
// of `turn` values before, or not (0).
class RowCoder {
 public:
  RowCoder(const std::string& spec, size_t width, bool keys) : type_(part_of(spec, keys ? "k=" : "v=")) {
    const std::string rotate = spec.rfind("ggml", 0) == 0 ? part_of(spec, "rotate=") : is_plain() ? "none" : "auto";
    const bool turned = rotate == "hadamard" || (rotate == "auto" && !is_plain() && width % 64 == 0);
    for (turn_ = turned ? 64 : 0; keys && turn_ > 0 && width % (2 * turn_) == 0; turn_ *= 2) {
    }
  }

  std::vector<uint8_t> encode(std::span<const float> row) const {
    std::vector<float> x(row.begin(), row.end());
    turn(x);
    std::vector<uint8_t> out;
    for (size_t at = 0; at < x.size(); at += is_plain() ? 1 : 32) {
      if (is_plain()) {
        put(out, NumberFormat(type_).encode(x[at]), NumberFormat(type_).bytes());
      } else {
        put_block(out, x.data() + at);
      }
    }
    return out;
  }

  // As a cache reads it: in floats.
  std::vector<float> decode(std::span<const uint8_t> bytes) const {
    std::vector<float> x = stored(bytes);
    turn(x);
    return x;
  }
  // In double.
  std::vector<double> exact(std::span<const uint8_t> bytes) const {
    const std::vector<float> x = stored(bytes);
    std::vector<double> y(x.begin(), x.end());
    butterflies(y);
    for (double& v : y) v /= turn_ > 0 ? std::sqrt(static_cast<double>(turn_)) : 1;
    return y;
  }

 private:
  static std::string part_of(const std::string& spec, const std::string& key) {
    const size_t at = spec.find(key);
    if (at != std::string::npos) return spec.substr(at + key.size(), spec.find(',', at) - at - key.size());
    return spec.rfind("ggml", 0) != 0 ? spec : key == "rotate=" ? "auto" : "f16";
  }
  bool is_plain() const { return type_ == "f32" || type_ == "f16" || type_ == "bf16"; }

  // Sums and differences at distances 1, 2, 4, ..., as the library promises for any machine.
  template <class T>
  void butterflies(std::vector<T>& x) const {
    for (size_t h = 1; h < turn_; h *= 2) {
      for (size_t i = 0; i < x.size(); ++i) {
        if ((i & h) != 0) continue;
        const T a = x[i], b = x[i + h];
        x[i] = a + b;
        x[i + h] = a - b;
      }
    }
  }
  void turn(std::vector<float>& x) const {
    if (turn_ == 0) return;
    butterflies(x);
    for (float& v : x) v *= static_cast<float>(1 / std::sqrt(static_cast<double>(turn_)));
  }

  static void put(std::vector<uint8_t>& out, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
  }
  static void put_half(std::vector<uint8_t>& out, float v) { put(out, NumberFormat("f16").encode(v), 2); }
  static float half(const uint8_t* p) {
    return static_cast<float>(NumberFormat("f16").decode(static_cast<uint32_t>(p[0] | p[1] << 8)));
  }
  static constexpr int kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

  int bits() const { return type_ == "q8_0" ? 8 : type_[0] == 'q' && type_[1] == '5' ? 5 : 4; }
  bool has_minimum() const { return type_ == "q4_1" || type_ == "q5_1"; }

  void put_block(std::vector<uint8_t>& out, const float* x) const {
    const float largest = *std::max_element(x, x + 32, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    const float low = *std::min_element(x, x + 32), high = *std::max_element(x, x + 32);
    const int half_range = 1 << (bits() - 1), top = (1 << bits()) - 1;
    int code[32];
    if (type_ == "iq4_nl") return put_iq4(out, x, largest);
    float d = 0;
    if (type_ == "q8_0") {
      d = std::fabs(largest) / 127;
    } else {
      d = has_minimum() ? (high - low) / static_cast<float>(top) : largest / static_cast<float>(-half_range);
    }
    const float inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 32; ++i) {
      if (type_ == "q8_0") {
        code[i] = static_cast<int>(std::round(x[i] * inverse));
      } else if (has_minimum()) {
        code[i] = std::min(top, static_cast<int>((x[i] - low) * inverse + 0.5f));
      } else {
        code[i] = std::min(top, static_cast<int>(x[i] * inverse + (static_cast<float>(half_range) + 0.5f)));
      }
    }
    put_half(out, d);
    if (has_minimum()) put_half(out, low);
    put_codes(out, code);
  }
  void put_iq4(std::vector<uint8_t>& out, const float* x, float largest) const {
    int code[32] = {};
    float sum_qx = 0, sum_q2 = 0;
    const float inverse = 1 / (largest / -127.0f);
    for (int i = 0; i < 32; ++i) {
      const float v = inverse * x[i];
      for (int l = 1; l < 16; ++l) {
        const float to_new = std::fabs(static_cast<float>(kLevels[l]) - v),
                    to_old = std::fabs(v - static_cast<float>(kLevels[code[i]]));
        if (to_new <= to_old) code[i] = l;
      }
      const float q = static_cast<float>(kLevels[code[i]]), weight = x[i] * x[i];
      sum_qx += weight * q * x[i];
      sum_q2 += weight * q * q;
    }
    put_half(out, sum_qx / sum_q2);
    put_codes(out, code);
  }
  void put_codes(std::vector<uint8_t>& out, const int* code) const {
    if (bits() == 8) {
      for (int i = 0; i < 32; ++i) out.push_back(static_cast<uint8_t>(code[i]));
      return;
    }
    uint32_t fifth = 0;
    for (int i = 0; i < 32; ++i) fifth |= static_cast<uint32_t>(code[i] >> 4 & 1) << i;
    if (bits() == 5) put(out, fifth, 4);
    for (int i = 0; i < 16; ++i) out.push_back(static_cast<uint8_t>((code[i] & 15) | (code[i + 16] & 15) << 4));
  }

  // What the codes stand for, still turned.
  std::vector<float> stored(std::span<const uint8_t> bytes) const {
    std::vector<float> x;
    if (is_plain()) {
      const NumberFormat format(type_);
      for (size_t at = 0; at < bytes.size(); at += format.bytes()) {
        uint32_t v = 0;
        for (size_t i = 0; i < format.bytes(); ++i) v |= static_cast<uint32_t>(bytes[at + i]) << (8 * i);
        x.push_back(static_cast<float>(format.decode(v)));
      }
      return x;
    }
    const size_t head = has_minimum() ? 4 : 2, fifths = bits() == 5 ? 4 : 0, size = head + fifths + (bits() == 8 ? 32 : 16);
    for (size_t at = 0; at < bytes.size(); at += size) {
      const uint8_t* const block = bytes.data() + at;
      for (size_t i = 0; i < 32; ++i) x.push_back(value(block, block + head, block + head + fifths, i));
    }
    return x;
  }
  float value(const uint8_t* block, const uint8_t* fifths, const uint8_t* codes, size_t i) const {
    const float d = half(block);
    if (bits() == 8) return d * static_cast<float>(static_cast<int8_t>(codes[i]));
    int code = i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
    if (bits() == 5) code |= (fifths[i / 8] >> (i % 8) & 1) << 4;
    if (type_ == "iq4_nl") return d * static_cast<float>(kLevels[code]);
    if (has_minimum()) return d * static_cast<float>(code) + half(block + 2);
    return d * static_cast<float>(code - (1 << (bits() - 1)));
  }

  std::string type_;
  size_t turn_ = 0;
};

}  // namespace kpd::testing
