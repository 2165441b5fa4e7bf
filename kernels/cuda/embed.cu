// Embedding: rows of a packed matrix as f32. A block is a row.
#include "linear.cuh"

// Element k of an output: its integer, scaled as the format says.
template <class F>
__device__ __forceinline__ float element(const uint8_t* quants, const uint8_t* scales, uint32_t k,
                                         uint32_t output) {
  const uint8_t* step = quants + (size_t)(k / STEP) * F::STEP_BYTES;
  uint32_t group = k % STEP / 4;
  uint32_t at = output * 4 + k % 4;
  int integer;
  if constexpr (F::LOW == 8) {
    integer = step[group * 64 + at];
  } else {
    integer = step[group % 4 * 64 + at] >> (group / 4 * 4) & 15;
  }
  if constexpr (F::HIGH > 0) {
    constexpr unsigned VECTORS = F::HIGH == 2 ? 2 : 1;
    unsigned high = step[(4 + group % VECTORS) * 64 + at] >> (group / VECTORS * VECTORS);
    integer |= (high & ((1u << F::HIGH) - 1)) << 4;
  }
  float value = __int2float_rn(integer - F::EXCESS);
  const uint8_t* scale = scales + (size_t)(k / F::BLOCK) * F::SCALE_BYTES;
  float d = half_at(scale + output * 2);
  if constexpr (F::SUB == 0) {
    value = __fmul_rn(d, value);
  } else {
    int sub = sub_scale<F>(scale, k % F::BLOCK / F::SUB, output);
    value = __fmul_rn(__fmul_rn(d, __int2float_rn(sub)), value);
  }
  if constexpr (F::MINIMUM == Minimum::Added) {
    value = __fadd_rn(value, half_at(scale + 32 + output * 2));
  }
  if constexpr (F::MINIMUM == Minimum::Scaled) {
    int sub = sub_minimum<F>(scale, k % F::BLOCK / F::SUB, output);
    float minimum = __fmul_rn(half_at(scale + 32 + output * 2), __int2float_rn(sub));
    value = __fsub_rn(value, minimum);
  }
  return value;
}

template <class F>
__device__ __forceinline__ void embed(const uint8_t* __restrict__ tiles,
                                      const uint32_t* __restrict__ tokens, float* __restrict__ out,
                                      uint32_t inputs) {
  uint32_t token = tokens[blockIdx.x];
  const uint8_t* quants = tiles + token / TILE * tile_bytes<F>(inputs);
  const uint8_t* scales = quants + scales_offset<F>(inputs);
  for (uint32_t k = threadIdx.x; k < inputs; k += blockDim.x) {
    out[(size_t)blockIdx.x * inputs + k] = element<F>(quants, scales, k, token % TILE);
  }
}

template <class T>
__device__ __forceinline__ void embed_dense(const uint8_t* __restrict__ tiles,
                                            const uint32_t* __restrict__ tokens,
                                            float* __restrict__ out, uint32_t inputs) {
  uint32_t token = tokens[blockIdx.x];
  size_t bytes = ((size_t)inputs * TILE * sizeof(T) + 63) / 64 * 64;
  const T* weights = (const T*)(tiles + token / TILE * bytes);
  for (uint32_t k = threadIdx.x; k < inputs; k += blockDim.x) {
    out[(size_t)blockIdx.x * inputs + k] = to_float(weights[(size_t)k * TILE + token % TILE]);
  }
}

#define EMBED(name, function, type)                                                              \
  extern "C" __global__ void __launch_bounds__(256)                                              \
  embed_##name(const uint8_t* __restrict__ tiles, const uint32_t* __restrict__ tokens,           \
               float* __restrict__ out, uint32_t inputs) {                                       \
    function<type>(tiles, tokens, out, inputs);                                                  \
  }

EMBED(q4_0, embed, Q4_0)
EMBED(q4_1, embed, Q4_1)
EMBED(q5_0, embed, Q5_0)
EMBED(q5_1, embed, Q5_1)
EMBED(q8_0, embed, Q8_0)
EMBED(q4_k, embed, Q4_K)
EMBED(q5_k, embed, Q5_K)
EMBED(q6_k, embed, Q6_K)
EMBED(f32, embed_dense, float)
EMBED(f16, embed_dense, __half)
EMBED(bf16, embed_dense, BFloat16)
