// Quantised linear layers for a single row: a matrix-vector product that streams the weights once.
//
// A block of threads is a tile of outputs. Half a warp is one segment of the inner dimension at a
// time, one chain for each output: of each step, lane (part, quad) loads the 16 bytes that hold the
// groups `part` and `part + 4` of four adjacent outputs. Integer sums are exact in any order, so
// the four parts are added by shuffles; lane (part, quad) then has output 4 quad + part.
#pragma once

#include "linear.cuh"

// Lanes that share a segment.
constexpr unsigned LANES = 16;
// Blocks of 32, or steps of a block of 256, whose loads are under way together.
constexpr unsigned AHEAD = 4;

__device__ __forceinline__ int dot4(uint32_t codes, uint32_t q, int sum) {
  return __dp4a((int)codes, (int)q, sum);
}

// What one lane loads of a step: words of four outputs, and its two groups of activations.
template <class F>
struct LaneStep {
  uint4 low, other, high;
  uint32_t first, second;

  __device__ __forceinline__ void load(const uint8_t* step, const int8_t* q, const Places<F>& at,
                                       uint32_t part, uint32_t quad) {
    const uint4* words = (const uint4*)step + quad;
    low = words[at.low * 4];
    if constexpr (F::LOW == 8) {
      other = words[(at.low + 4) * 4];
    }
    if constexpr (F::HIGH > 0) {
      high = words[at.high * 4];
    }
    first = *(const uint32_t*)(q + part * 4);
    second = *(const uint32_t*)(q + 16 + part * 4);
  }

  // The codes' groups of output `o` of the four.
  __device__ __forceinline__ void codes(unsigned o, const Places<F>& at, uint32_t& a,
                                        uint32_t& b) const {
    auto word = [o](const uint4& words) {
      return o == 0 ? words.x : o == 1 ? words.y : o == 2 ? words.z : words.w;
    };
    group_pair<F>({word(low), F::LOW == 8 ? word(other) : 0, F::HIGH > 0 ? word(high) : 0}, at, a,
                  b);
  }
};

// What the excess of four codes adds to their product with `q`, taken off.
template <class F>
__device__ __forceinline__ int excess(uint32_t q, int sum) {
  return EXCESS<F> == 0 ? sum : dot4((uint32_t)(256 - EXCESS<F>) * 0x01010101u, q, sum);
}

// Adds the four parts' sums; lane (part, quad) gets sums[part].
__device__ __forceinline__ int add_parts(const int (&sums)[4], uint32_t part) {
  bool upper = part & 2, odd = part & 1;
  int low = upper ? sums[2] : sums[0];
  int high = upper ? sums[3] : sums[1];
  low += __shfl_xor_sync(ALL_LANES, upper ? sums[0] : sums[2], 8);
  high += __shfl_xor_sync(ALL_LANES, upper ? sums[1] : sums[3], 8);
  return (odd ? high : low) + __shfl_xor_sync(ALL_LANES, odd ? low : high, 4);
}

// Blocks of 32.
template <class F>
__device__ __forceinline__ float chain_32(const uint8_t* quants, const uint8_t* scales,
                                          const QuantisedRow& x, uint32_t begin, uint32_t end,
                                          uint32_t last) {
  uint32_t lane = threadIdx.x % LANES, part = lane / 4, quad = lane % 4;
  Places<F> at(part);
  float acc = 0.0f;
#pragma unroll 1
  for (uint32_t i = 0; i < SEGMENT / F::BLOCK; i += AHEAD) {
    LaneStep<F> steps[AHEAD];
#pragma unroll
    for (unsigned j = 0; j < AHEAD; j++) {
      uint32_t block = min(begin + i + j, last);
      steps[j].load(quants + (size_t)block * F::STEP_BYTES, x.q + (size_t)block * STEP, at, part,
                    quad);
    }
#pragma unroll
    for (unsigned j = 0; j < AHEAD; j++) {
      uint32_t block = min(begin + i + j, last);
      const LaneStep<F>& step = steps[j];
      int start = excess<F>(step.first, excess<F>(step.second, 0));
      int sums[4];
#pragma unroll
      for (unsigned o = 0; o < 4; o++) {
        uint32_t a, b;
        step.codes(o, at, a, b);
        sums[o] = dot4(b, step.second, dot4(a, step.first, start));
      }
      int dot = add_parts(sums, part);
      const uint8_t* scale = scales + (size_t)block * F::SCALE_BYTES;
      uint32_t output = quad * 4 + part;
      float d = block_scale<F>(scale, output);
      float dx = x.d[block];
      float next = __fmaf_rn(__fmul_rn(d, dx), __int2float_rn(dot), acc);
      if constexpr (F::MINIMUM == Minimum::Added) {
        float sum = __fmul_rn(dx, __int2float_rn(x.sums[block]));
        next = __fmaf_rn(half_at(scale + 32 + output * 2), sum, next);
      }
      acc = begin + i + j < end ? next : acc;
    }
  }
  return acc;
}

// One step of a block of 256: its products, times their sub-scales, and its sums times their
// sub-minimums.
template <class F>
__device__ __forceinline__ void lane_step_256(const LaneStep<F>& step, const Places<F>& at,
                                              const uint8_t* scale, uint32_t s, uint32_t quad,
                                              int (&dots)[4], int (&lows)[4]) {
  constexpr bool HALVES = F::SUB == 16;
  constexpr uint32_t ONES = 0x01010101u;
  auto word = [quad](const uint8_t* bytes) { return *(const uint32_t*)(bytes + quad * 4); };
  uint32_t sub = HALVES ? 2 * s : s;
  uint32_t scale_a = word(sub_scales<F>(scale, sub));
  uint32_t scale_b = HALVES ? word(sub_scales<F>(scale, sub + 1)) : scale_a;
  int start_a = excess<F>(step.first, 0), start_b = excess<F>(step.second, 0);
  int sum_a = 0, sum_b = 0;
  uint32_t minimum_a = 0;
  if constexpr (F::MINIMUM == Minimum::Scaled) {
    sum_a = dot4(ONES, step.first, 0);
    sum_b = dot4(ONES, step.second, 0);
    minimum_a = HALVES ? scale_a : word(sub_minimums<F>(scale, sub));
  }
#pragma unroll
  for (unsigned o = 0; o < 4; o++) {
    uint32_t a, b;
    step.codes(o, at, a, b);
    if constexpr (HALVES) {
      dots[o] += sub_scale<F>(scale_a, o) * dot4(a, step.first, start_a);
      dots[o] += sub_scale<F>(scale_b, o) * dot4(b, step.second, start_b);
    } else {
      dots[o] += sub_scale<F>(scale_a, o) *
                 dot4(b, step.second, dot4(a, step.first, start_a + start_b));
    }
    if constexpr (F::MINIMUM == Minimum::Scaled && HALVES) {
      lows[o] += sub_minimum<F>(scale_a, o) * sum_a + sub_minimum<F>(scale_b, o) * sum_b;
    } else if constexpr (F::MINIMUM == Minimum::Scaled) {
      lows[o] += sub_minimum<F>(minimum_a, o) * (sum_a + sum_b);
    }
  }
}

// Blocks of 256.
template <class F>
__device__ __forceinline__ float chain_256(const uint8_t* quants, const uint8_t* scales,
                                           const QuantisedRow& x, uint32_t begin, uint32_t end,
                                           uint32_t last) {
  constexpr unsigned STEPS = 256 / STEP;
  uint32_t lane = threadIdx.x % LANES, part = lane / 4, quad = lane % 4;
  Places<F> at(part);
  float acc = 0.0f;
#pragma unroll 1
  for (uint32_t i = 0; i < SEGMENT / F::BLOCK; i++) {
    uint32_t block = min(begin + i, last);
    const uint8_t* scale = scales + (size_t)block * F::SCALE_BYTES;
    int dots[4] = {}, lows[4] = {};
#pragma unroll 1
    for (unsigned s = 0; s < STEPS; s += AHEAD) {
      LaneStep<F> steps[AHEAD];
      size_t first = (size_t)block * STEPS + s;
#pragma unroll
      for (unsigned j = 0; j < AHEAD; j++) {
        steps[j].load(quants + (first + j) * F::STEP_BYTES, x.q + (first + j) * STEP, at, part,
                      quad);
      }
#pragma unroll
      for (unsigned j = 0; j < AHEAD; j++) {
        lane_step_256<F>(steps[j], at, scale, s + j, quad, dots, lows);
      }
    }
    int dot = add_parts(dots, part);
    uint32_t output = quad * 4 + part;
    float dx = x.d[block];
    float next = __fmaf_rn(__fmul_rn(half_at(scale + output * 2), dx), __int2float_rn(dot), acc);
    if constexpr (F::MINIMUM == Minimum::Scaled) {
      float minimum = half_at(scale + 32 + output * 2);
      float low = __int2float_rn(add_parts(lows, part));
      next = __fmaf_rn(__fmul_rn(-minimum, dx), low, next);
    }
    acc = begin + i < end ? next : acc;
  }
  return acc;
}

// A block is (tile, row).
template <class F>
__device__ __forceinline__ void linear_vector(const uint8_t* __restrict__ tiles,
                                              const int8_t* __restrict__ q,
                                              const float* __restrict__ d,
                                              const int32_t* __restrict__ sums,
                                              float* __restrict__ out, uint32_t outputs,
                                              uint32_t inputs) {
  extern __shared__ float partial[];
  constexpr uint32_t BLOCKS = SEGMENT / F::BLOCK;
  const uint8_t* quants = tiles + blockIdx.x * tile_bytes<F>(inputs);
  const uint8_t* scales = quants + scales_offset<F>(inputs);
  QuantisedRow x = quantised_row<F>(q, d, sums, blockIdx.y, inputs);
  uint32_t blocks = inputs / F::BLOCK;
  uint32_t segments = (blocks + BLOCKS - 1) / BLOCKS;
  uint32_t lane = threadIdx.x % LANES, half = threadIdx.x / LANES % 2;
  // Both halves of a warp take as many turns as the longest segment has, since they shuffle together:
  // what a half has no block for, it does with the last one and throws away. There are at most as many warps as pairs.
  uint32_t pair = threadIdx.x / WARP * 2;
#pragma unroll 1
  do {
    uint32_t s = pair + half;
    uint32_t begin = s * BLOCKS;
    uint32_t end = min(blocks, begin + BLOCKS);
    float acc;
    if constexpr (F::BLOCK == 256) {
      acc = chain_256<F>(quants, scales, x, begin, end, blocks - 1);
    } else {
      acc = chain_32<F>(quants, scales, x, begin, end, blocks - 1);
    }
    if (s < segments) {
      partial[s * TILE + lane % 4 * 4 + lane / 4] = acc;
    }
    pair += blockDim.x / LANES;
  } while (pair < segments);
  add_segments<1>(partial, out, outputs, segments, gridDim.y);
}
