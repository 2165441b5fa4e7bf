// Embedding: rows of a packed matrix as f32. A block is a row.
#include "linear.cuh"

// Element k of an output: its integer, scaled as the format says.
template <class F>
__device__ __forceinline__ float element(const uint8_t* quants, const uint8_t* scales, uint32_t k,
                                         uint32_t output) {
  const uint8_t* step = quants + (size_t)(k / STEP) * F::STEP_BYTES;
  uint32_t group = k % STEP / 4;
  uint32_t at = output * 4 + k % 4;
  Places<F> places(group % 4);
  uint32_t low = step[(F::LOW == 8 ? group : places.low) * VECTOR + at];
  uint32_t high = F::HIGH > 0 ? step[places.high * VECTOR + at] : 0;
  uint32_t first, second;
  group_pair<F>({low, low, high}, places, first, second);
  int integer = (int)(int8_t)(group < 4 ? first : second) - EXCESS<F>;
  float value = __int2float_rn(integer);
  const uint8_t* scale = scales + (size_t)(k / F::BLOCK) * F::SCALE_BYTES;
  float d = block_scale<F>(scale, output);
  if constexpr (F::SUB == 0) {
    value = __fmul_rn(d, value);
  } else {
    uint32_t sub = k % F::BLOCK / F::SUB;
    int factor = sub_scale<F>(sub_scales<F>(scale, sub)[output], 0);
    value = __fmul_rn(__fmul_rn(d, __int2float_rn(factor)), value);
  }
  if constexpr (F::MINIMUM == Minimum::Added) {
    value = __fadd_rn(value, half_at(scale + 32 + output * 2));
  }
  if constexpr (F::MINIMUM == Minimum::Scaled) {
    int factor = sub_minimum<F>(sub_minimums<F>(scale, k % F::BLOCK / F::SUB)[output], 0);
    float minimum = __fmul_rn(half_at(scale + 32 + output * 2), __int2float_rn(factor));
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
EMBED(iq4_nl, embed, IQ4_NL)
EMBED(mxfp4, embed, MXFP4)
EMBED(q2_k, embed, Q2_K)
EMBED(q3_k, embed, Q3_K)
EMBED(q4_k, embed, Q4_K)
EMBED(q5_k, embed, Q5_K)
EMBED(q6_k, embed, Q6_K)
EMBED(iq4_xs, embed, IQ4_XS)
EMBED(f32, embed_dense, float)
EMBED(f16, embed_dense, __half)
EMBED(bf16, embed_dense, BFloat16)
