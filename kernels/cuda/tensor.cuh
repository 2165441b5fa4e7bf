// Integer tensor cores under the quantised linear layers: a tile's sixteen outputs are the rows of
// the first matrix, eight rows of activations the columns of the second, a step of 32 elements (or
// its halves of 16) the inner dimension. Such a product is exact; what follows is the rule's f32.
//
// Of a product, lane (g, t) of a warp, g = lane / 4 and t = lane % 4, holds the outputs 2 g and
// 2 g + 1 of the activations' rows 2 t and 2 t + 1: entry i is output 2 g + i / 2 of row 2 t + i % 2.
#pragma once

#include "linear.cuh"

// Rows of activations in one product.
constexpr unsigned COLUMNS = 8;

struct Lane {
  uint32_t g, t;
  __device__ __forceinline__ Lane() : g(threadIdx.x % WARP / 4), t(threadIdx.x % 4) {}
};

// The products of 32 elements, added to c.
__device__ __forceinline__ void multiply_32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of 16.
__device__ __forceinline__ void multiply_16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

// A step's weights as the first matrix; its rows g and g + 8 are the outputs 2 g and 2 g + 1, whose
// words are adjacent.
template <class F>
__device__ __forceinline__ void weights_of_step(const uint8_t* step, const Lane& lane,
                                                const Places<F>& at, uint32_t (&a)[4]) {
  const uint2* words = (const uint2*)step + lane.g;
  uint2 low = words[at.low * 8];
  uint2 other = {}, high = {};
  if constexpr (F::LOW == 8) {
    other = words[(at.low + 4) * 8];
  }
  if constexpr (F::HIGH > 0) {
    high = words[at.high * 8];
  }
  group_pair<F>({low.x, other.x, high.x}, at, a[0], a[2]);
  group_pair<F>({low.y, other.y, high.y}, at, a[1], a[3]);
#pragma unroll
  for (unsigned i = 0; i < 4; i++) {
    a[i] = without_excess<F>(a[i]);
  }
}

// The scales of a block's outputs 2 g and 2 g + 1, and their minimums where the format has some.
struct BlockScales {
  float d[2], minimum[2];
};

template <class F>
__device__ __forceinline__ BlockScales block_scales(const uint8_t* scales, const Lane& lane) {
  BlockScales out = {};
  if constexpr (F::VALUES == Values::Mxfp4) {
    uint16_t pair = *(const uint16_t*)(scales + lane.g * 2);
    out.d[0] = half_of_power(pair & 255);
    out.d[1] = half_of_power(pair >> 8);
  } else {
    float2 d = __half22float2(*(const __half2*)(scales + lane.g * 4));
    out.d[0] = d.x;
    out.d[1] = d.y;
  }
  if constexpr (F::MINIMUM != Minimum::None) {
    float2 minimum = __half22float2(*(const __half2*)(scales + 32 + lane.g * 4));
    out.minimum[0] = minimum.x;
    out.minimum[1] = minimum.y;
  }
  return out;
}

// An integer below 2^22 in magnitude, added to this in a product, is a float's low bits: taking
// ROUNDER off leaves it, exactly, at the price of an addition.
constexpr int INTEGER_IN_FLOAT = 0x4b400000;

// The step of the chain for a block of 32: `d` and `sums` are those of the activations' two rows.
template <class F>
__device__ __forceinline__ void chain_step_32(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1, const BlockScales& w, float2 d,
                                              int2 sums) {
  int c[4] = {INTEGER_IN_FLOAT, INTEGER_IN_FLOAT, INTEGER_IN_FLOAT, INTEGER_IN_FLOAT};
  multiply_32(c, a, b0, b1);
  float low[2] = {};
  if constexpr (F::MINIMUM == Minimum::Added) {
    low[0] = __fmul_rn(d.x, __int2float_rn(sums.x));
    low[1] = __fmul_rn(d.y, __int2float_rn(sums.y));
  }
#pragma unroll
  for (unsigned i = 0; i < 4; i++) {
    float dot = __fsub_rn(__int_as_float(c[i]), ROUNDER);
    acc[i] = __fmaf_rn(__fmul_rn(w.d[i / 2], i % 2 ? d.y : d.x), dot, acc[i]);
    if constexpr (F::MINIMUM == Minimum::Added) {
      acc[i] = __fmaf_rn(w.minimum[i / 2], low[i % 2], acc[i]);
    }
  }
}

// Bytes that the outputs 2 g and 2 g + 1 have of sub-scales or sub-minimums.
__device__ __forceinline__ uint32_t byte_pair(const uint8_t* bytes, const Lane& lane) {
  return *(const uint16_t*)(bytes + lane.g * 2);
}

// A step of a block of 256: its products times their sub-scales.
template <class F>
__device__ __forceinline__ void add_products(int (&dots)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1, uint32_t first, uint32_t second) {
  int c[2][4] = {};
  if constexpr (F::SUB == 16) {
    multiply_16(c[0], a[0], a[1], b0);
    multiply_16(c[1], a[2], a[3], b1);
  } else {
    multiply_32(c[0], a, b0, b1);
  }
#pragma unroll
  for (unsigned i = 0; i < 4; i++) {
    dots[i] += sub_scale<F>(first, i / 2) * c[0][i];
    if constexpr (F::SUB == 16) {
      dots[i] += sub_scale<F>(second, i / 2) * c[1][i];
    }
  }
}

// The sub-scales of step `s` of a block of 256: of its first and its second sixteen elements.
template <class F>
struct StepScales {
  uint32_t first, second;
  __device__ __forceinline__ StepScales(const uint8_t* scales, uint32_t s, const Lane& lane)
      : second(0) {
    first = byte_pair(sub_scales<F>(scales, F::SUB == 16 ? 2 * s : s), lane);
    if constexpr (F::SUB == 16) {
      second = byte_pair(sub_scales<F>(scales, 2 * s + 1), lane);
    }
  }
};

// The sub-minimums likewise.
template <class F>
struct StepMinimums {
  uint32_t first, second;
  __device__ __forceinline__ StepMinimums(const uint8_t* scales, uint32_t s, const Lane& lane) {
    first = byte_pair(sub_minimums<F>(scales, F::SUB == 16 ? 2 * s : s), lane);
    second = F::SUB == 16 ? byte_pair(sub_minimums<F>(scales, 2 * s + 1), lane) : first;
  }

  // Adds them times the sums of integers of the step's halves, of the activations' rows x and y.
  __device__ __forceinline__ void add(int (&lows)[4], int2 x, int2 y) const {
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      int2 sums = i % 2 ? y : x;
      if constexpr (F::SUB == 16) {
        lows[i] += sub_minimum<F>(first, i / 2) * sums.x + sub_minimum<F>(second, i / 2) * sums.y;
      } else {
        lows[i] += sub_minimum<F>(first, i / 2) * (sums.x + sums.y);
      }
    }
  }
};

// The step of the chain for a block of 256, whose integer sums begin anew.
template <class F>
__device__ __forceinline__ void chain_step_256(float (&acc)[4], int (&dots)[4], int (&lows)[4],
                                               const BlockScales& w, float2 d) {
#pragma unroll
  for (unsigned i = 0; i < 4; i++) {
    float dx = i % 2 ? d.y : d.x;
    acc[i] = __fmaf_rn(__fmul_rn(w.d[i / 2], dx), __int2float_rn(dots[i]), acc[i]);
    if constexpr (F::MINIMUM == Minimum::Scaled) {
      acc[i] = __fmaf_rn(__fmul_rn(-w.minimum[i / 2], dx), __int2float_rn(lows[i]), acc[i]);
    }
    dots[i] = 0;
    lows[i] = 0;
  }
}
