// What all kernels of the `portable` profile share: the contract's exponential and the fold of a
// row's 64 virtual lanes. Every float operation is written as the one IEEE-754 operation it is.
#pragma once

#include <stdint.h>

constexpr unsigned WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
// Virtual lanes of a reduction over a row (numerics rule 5).
constexpr unsigned ROW_LANES = 64;
// Elements of the inner dimension that one chain sums (rule 4).
constexpr unsigned SEGMENT = 512;
// Absolute positions in a split of attention (rule 6).
constexpr unsigned SPLIT = 256;

constexpr float EXP_LOWEST = -87.33f;
constexpr float EXP_HIGHEST = 88.37f;
constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float LN2_HIGH = 0.693359375f;
constexpr float LN2_LOW = -2.1219444e-4f;
// Adding and subtracting 1.5 x 2^23 rounds to the nearest integer, ties to even.
constexpr float ROUNDER = 12582912.0f;

// e to the power of x for x that is not above 0, operation by operation as the CPU backend defines
// it; what x above EXP_HIGHEST gives has no meaning.
__device__ __forceinline__ float exp_not_positive(float x) {
  float shifted = __fmaf_rn(x, LOG2_E, ROUNDER);
  float n = __fsub_rn(shifted, ROUNDER);
  float r = __fmaf_rn(n, -LN2_LOW, __fmaf_rn(n, -LN2_HIGH, x));
  float p = 1.3888889e-3f;
  p = __fmaf_rn(p, r, 8.333334e-3f);
  p = __fmaf_rn(p, r, 4.1666668e-2f);
  p = __fmaf_rn(p, r, 1.6666667e-1f);
  p = __fmaf_rn(p, r, 0.5f);
  p = __fmaf_rn(p, r, 1.0f);
  p = __fmaf_rn(p, r, 1.0f);
  float power = __uint_as_float((__float_as_uint(shifted) << 23) + (127u << 23));
  float value = __fmul_rn(p, power);
  return x < EXP_LOWEST ? 0.0f : value;
}

// The same for every x.
__device__ __forceinline__ float portable_exp(float x) {
  float value = exp_not_positive(x);
  return x > EXP_HIGHEST ? __uint_as_float(0x7f800000u) : value;
}

// Folds 64 lanes, one in each of the first 64 threads of a block of which every thread calls:
// 32, 16, 8, 4, 2, 1. Thread 0 gets the sum. `scratch` holds 32 floats and is free afterwards
// only behind a barrier.
__device__ __forceinline__ float fold_row_lanes(float lane, float* scratch) {
  unsigned thread = threadIdx.x;
  if (thread >= WARP && thread < ROW_LANES) {
    scratch[thread - WARP] = lane;
  }
  __syncthreads();
  if (thread < WARP) {
    lane = __fadd_rn(lane, scratch[thread]);
    for (unsigned width = WARP / 2; width > 0; width /= 2) {
      lane = __fadd_rn(lane, __shfl_down_sync(ALL_LANES, lane, width));
    }
  }
  return lane;
}

// Threads of a block that looks for values that are not finite.
constexpr unsigned CHECKING_THREADS = 128;
constexpr unsigned CHECKING_WARPS = CHECKING_THREADS / WARP;

__device__ __forceinline__ bool is_finite(float x) {
  return fabsf(x) < __uint_as_float(0x7f800000u);
}

// Whether any thread of the block found something; the answer is thread 0's. A type for each
// kernel, so that each has shared memory of its own.
template <class T>
__device__ __forceinline__ bool any_in_block(bool found) {
  __shared__ uint32_t warps[CHECKING_WARPS];
  bool in_warp = __any_sync(ALL_LANES, found);
  if (threadIdx.x % WARP == 0) {
    warps[threadIdx.x / WARP] = in_warp;
  }
  __syncthreads();
  bool any = false;
  for (unsigned w = 0; w < CHECKING_WARPS; w++) {
    any = any || warps[w] != 0;
  }
  return any;
}
