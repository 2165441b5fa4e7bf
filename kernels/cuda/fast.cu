// The entries of the `fast` profile: rows rounded to 16 bits, and linear layers over them.
#include "fast_linear.cuh"

// Blocks whose greatest magnitude is below 2^-100 become zeros.
constexpr float TINY = 7.888609052210118e-31f;
constexpr unsigned ROUNDING_THREADS = 1024;

__device__ __forceinline__ uint16_t narrowed(__half*, float x) {
  return __half_as_ushort(__float2half_rn(x));
}

__device__ __forceinline__ uint16_t narrowed(BFloat16*, float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// Rounds a row, times the power of two that brings its greatest magnitude to 2 or more and below
// 4; `scales` gets the inverse. Rows are written up to whole steps, with zeros behind the last
// element, in the order of k: of every sixteen elements the first two of each four, then the last
// two. A block is a row.
template <class T>
__device__ __forceinline__ void round_row(const float* __restrict__ x, uint32_t* __restrict__ out,
                                          float* __restrict__ scales, uint32_t inputs) {
  __shared__ float warp_max[ROUNDING_THREADS / WARP];
  const float* row = x + (size_t)blockIdx.x * inputs;
  float greatest = 0.0f;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < inputs; i += ROUNDING_THREADS) {
    greatest = fmaxf(greatest, fabsf(row[i]));
  }
  for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
    greatest = fmaxf(greatest, __shfl_xor_sync(ALL_LANES, greatest, distance));
  }
  if (threadIdx.x % WARP == 0) {
    warp_max[threadIdx.x / WARP] = greatest;
  }
  __syncthreads();
#pragma unroll
  for (unsigned w = 0; w < ROUNDING_THREADS / WARP; w++) {
    greatest = fmaxf(greatest, warp_max[w]);
  }
  uint32_t exponent = __float_as_uint(greatest) >> 23;
  bool tiny = greatest < TINY;
  float up = __uint_as_float(tiny ? 0 : (255 - exponent) << 23);
  if (threadIdx.x == 0) {
    scales[blockIdx.x] = __uint_as_float(tiny ? 0 : (exponent - 1) << 23);
  }
  uint32_t pairs = (inputs + STEP - 1) / STEP * (STEP / 2);
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < pairs; i += ROUNDING_THREADS) {
    uint32_t pair = i / 8 * 8 + i % 4 * 2 + i / 4 % 2;
    uint32_t bits = 0;
    if (2 * pair < inputs) {
      bits = narrowed((T*)nullptr, __fmul_rn(row[2 * pair], up));
    }
    if (2 * pair + 1 < inputs) {
      bits |= (uint32_t)narrowed((T*)nullptr, __fmul_rn(row[2 * pair + 1], up)) << 16;
    }
    out[(size_t)blockIdx.x * pairs + i] = bits;
  }
}

#define ROUND(name, type)                                                                       \
  extern "C" __global__ void __launch_bounds__(ROUNDING_THREADS)                                \
  fast_round_##name(const float* __restrict__ x, uint32_t* __restrict__ out,                    \
                    float* __restrict__ scales, uint32_t inputs) {                              \
    round_row<type>(x, out, scales, inputs);                                                    \
  }

#define LINEAR(name, weights, type, stages)                                                     \
  extern "C" __global__ void __launch_bounds__(256, 2)                                          \
  fast_linear_##name##_narrow(const uint8_t* __restrict__ tiles, const uint16_t* __restrict__ x, \
                              const float* __restrict__ scales, float* __restrict__ out,        \
                              uint32_t outputs, uint32_t inputs, uint32_t rows) {               \
    narrow<weights, type, stages>(tiles, x, scales, out, outputs, inputs, rows);                \
  }                                                                                             \
  extern "C" __global__ void __launch_bounds__(256, 1)                                          \
  fast_linear_##name##_wide(const uint8_t* __restrict__ tiles, const uint16_t* __restrict__ x,  \
                            const float* __restrict__ scales, float* __restrict__ out,          \
                            uint32_t outputs, uint32_t inputs, uint32_t rows) {                 \
    wide<weights, type>(tiles, x, scales, out, outputs, inputs, rows);                          \
  }

ROUND(f16, __half)
ROUND(bf16, BFloat16)
LINEAR(f16, Dense<__half>, __half, 3)
LINEAR(bf16, Dense<BFloat16>, BFloat16, 3)
LINEAR(q4_0, Quantised<Q4_0>, __half, 4)
LINEAR(q4_1, Quantised<Q4_1>, __half, 4)
LINEAR(q5_0, Quantised<Q5_0>, __half, 4)
LINEAR(q5_1, Quantised<Q5_1>, __half, 4)
LINEAR(q8_0, Quantised<Q8_0>, __half, 4)
LINEAR(q4_k, Quantised<Q4_K>, __half, 4)
LINEAR(q5_k, Quantised<Q5_K>, __half, 4)
LINEAR(q6_k, Quantised<Q6_K>, __half, 4)
