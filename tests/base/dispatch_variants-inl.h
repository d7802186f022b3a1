// tests: a kernel with a form for every variant that there is, for dispatch_test.cc; included by base/foreach_variant-inl.h.
KPD_BEFORE_VARIANT();
namespace kpd::testing {
namespace HWY_NAMESPACE {
namespace KPD_VARIANT {

// Which form runs: the flags it was compiled for, above them the bytes of a vector.
uint32_t form_at_work() {
  return (KPD_HAS_VNNI ? kVnni : 0) | (KPD_HAS_VBMI ? kVbmi : 0) | (KPD_HAS_GFNI ? kGfni : 0) | HWY_MAX_BYTES << 8;
}

// Sum over 64 bytes of reversed bits of table[index] times x: the instructions of each variant where it has them.
int32_t permuted_dot(const uint8_t* table, const uint8_t* index, const int8_t* x) {
  alignas(64) uint8_t picked[64];
#if KPD_HAS_VBMI && KPD_HAS_GFNI
  const __m512i values = _mm512_permutexvar_epi8(_mm512_loadu_si512(index), _mm512_loadu_si512(table));
  _mm512_store_si512(picked,
                     _mm512_gf2p8affine_epi64_epi8(values, _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201u)), 0));
#else
  for (size_t i = 0; i < 64; ++i) {
    picked[i] = 0;
    for (int bit = 0; bit < 8; ++bit) picked[i] = static_cast<uint8_t>(picked[i] | ((table[index[i]] >> bit) & 1) << (7 - bit));
  }
#endif
#if KPD_HAS_VNNI && HWY_TARGET == HWY_AVX3
  return _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_load_si512(picked), _mm512_loadu_si512(x)));
#elif KPD_HAS_VNNI && HWY_TARGET == HWY_AVX2
  __m256i sums = _mm256_setzero_si256();
  for (size_t i = 0; i < 64; i += 32) {
    sums = _mm256_dpbusd_avx_epi32(sums, _mm256_load_si256(reinterpret_cast<const __m256i*>(picked + i)),
                                   _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)));
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
#else
  int32_t sum = 0;
  for (size_t i = 0; i < 64; ++i) sum += picked[i] * x[i];
  return sum;
#endif
}

}  // namespace KPD_VARIANT
}  // namespace HWY_NAMESPACE
}  // namespace kpd::testing
KPD_AFTER_VARIANT();
