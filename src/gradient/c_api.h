// gradient: what the parts of the C interface share. Every function of kpd_gradient.h runs inside guarded(). Private.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/gradient/kpd_gradient.h"
#include "kpd/gradient/message.h"

namespace kpd::gradient::c_api {

// Copies as much of `text` as fits.
inline void put_text(const char* text, char* error, size_t error_bytes) {
  if (error == nullptr || error_bytes == 0) return;
  const size_t n = std::min(std::strlen(text), error_bytes - 1);
  std::memcpy(error, text, n);
  error[n] = '\0';
}

inline int report(ErrorCode code, const char* text, char* error, size_t error_bytes) {
  put_text(text, error, error_bytes);
  return static_cast<int>(code);
}

template <class Fn>
int guarded(char* error, size_t error_bytes, const Fn& fn) {
  try {
    fn();
    return 0;
  } catch (const Error& e) {
    return report(e.code(), e.what(), error, error_bytes);
  } catch (const std::bad_alloc&) {
    return report(ErrorCode::kOutOfMemory, "out of memory", error, error_bytes);
  } catch (const std::exception& e) {
    return report(ErrorCode::kInternal, e.what(), error, error_bytes);
  } catch (...) {
    return report(ErrorCode::kInternal, "unknown exception", error, error_bytes);
  }
}

inline void require(bool ok, const char* what) {
  if (!ok) fail(ErrorCode::kInvalidArgument, what, " must not be NULL");
}

inline Manifest manifest_of(const uint64_t* counts, size_t n) {
  Manifest m;
  for (size_t i = 0; i < n; ++i) m.push_back({std::to_string(i), DType::kFloat32, {counts[i]}});
  return m;
}

inline RunSecret secret_of(const uint8_t* bytes) {
  RunSecret s;
  std::copy_n(bytes, s.bytes.size(), s.bytes.begin());
  return s;
}

inline MessageIds ids_of(const kpd_message_ids& c) { return {c.run, c.round, c.client, c.base_model_hash, c.weight}; }

// The memory of tensors of known sizes.
struct Tensors {
  std::vector<uint64_t> counts;
  std::vector<std::span<float>> spans;
  Tensors(const uint64_t* of, size_t n) : counts(of, of + n), spans(n) {}
  std::span<const std::span<float>> at(float* const* memory) {
    for (size_t i = 0; i < counts.size(); ++i) {
      require(memory[i] != nullptr || counts[i] == 0, "a tensor");
      spans[i] = {memory[i], counts[i]};
    }
    return spans;
  }
};

}  // namespace kpd::gradient::c_api
