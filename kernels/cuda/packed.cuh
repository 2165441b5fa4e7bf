// The packed layout of quantised weights, the one the CPU backend makes at load (host,
// backend/cpu/pack.rs): tiles of sixteen outputs; in a tile, for every 32 elements, bit planes of
// the codes whose vector v holds groups of four elements of each output; then the blocks' scales.
#pragma once

#include <cuda_fp16.h>
#include "portable.cuh"

constexpr unsigned TILE = 16;
// Elements of one step, and their groups of four.
constexpr unsigned STEP = 32;
constexpr unsigned GROUPS = STEP / 4;

enum class Minimum { None, Added, Scaled };

// A quantised format: bits of the lower and the upper plane, what a code exceeds its integer by,
// elements of a block, elements that share a sub-scale (0: none), bytes of a block's scales.
template <unsigned Low, unsigned High, int Excess, unsigned BlockLength, unsigned SubLength,
          unsigned ScaleBytes, Minimum Min>
struct Format {
  static constexpr unsigned LOW = Low;
  static constexpr unsigned HIGH = High;
  static constexpr int EXCESS = Excess;
  static constexpr unsigned BLOCK = BlockLength;
  static constexpr unsigned SUB = SubLength;
  static constexpr unsigned SCALE_BYTES = ScaleBytes;
  static constexpr Minimum MINIMUM = Min;
  static constexpr unsigned STEP_BYTES = STEP * TILE / 8 * (Low + High);
};

using Q4_0 = Format<4, 0, 8, 32, 0, 32, Minimum::None>;
using Q4_1 = Format<4, 0, 0, 32, 0, 64, Minimum::Added>;
using Q5_0 = Format<4, 1, 16, 32, 0, 32, Minimum::None>;
using Q5_1 = Format<4, 1, 0, 32, 0, 64, Minimum::Added>;
using Q8_0 = Format<8, 0, 128, 32, 0, 32, Minimum::None>;
using Q4_K = Format<4, 0, 0, 256, 32, 320, Minimum::Scaled>;
using Q5_K = Format<4, 1, 0, 256, 32, 320, Minimum::Scaled>;
using Q6_K = Format<4, 2, 32, 256, 16, 288, Minimum::None>;

// Where a tile's scales begin, and how long a tile is.
template <class F>
__device__ __forceinline__ size_t scales_offset(uint32_t inputs) {
  return (size_t)(inputs / STEP) * F::STEP_BYTES;
}

template <class F>
__device__ __forceinline__ size_t tile_bytes(uint32_t inputs) {
  return (scales_offset<F>(inputs) + (size_t)(inputs / F::BLOCK) * F::SCALE_BYTES + 63) / 64 * 64;
}

__device__ __forceinline__ float half_at(const uint8_t* bytes) {
  return __half2float(*(const __half*)bytes);
}

// The eight groups of four codes that one output has in a step, still with their excess; those of
// a whole byte as signed bytes without it.
template <class F>
__device__ __forceinline__ void step_codes(const uint8_t* step, uint32_t output,
                                           uint32_t (&codes)[GROUPS]) {
  const uint32_t* words = (const uint32_t*)step + output;
  if constexpr (F::LOW == 8) {
#pragma unroll
    for (unsigned g = 0; g < GROUPS; g++) {
      codes[g] = words[g * TILE] ^ 0x80808080u;
    }
  } else {
#pragma unroll
    for (unsigned v = 0; v < 4; v++) {
      uint32_t word = words[v * TILE];
      codes[v] = word & 0x0f0f0f0fu;
      codes[v + 4] = word >> 4 & 0x0f0f0f0fu;
    }
  }
  if constexpr (F::HIGH > 0) {
    constexpr unsigned VECTORS = F::HIGH == 2 ? 2 : 1;
    constexpr uint32_t MASK = F::HIGH == 2 ? 0x03030303u : 0x01010101u;
    uint32_t high[VECTORS];
#pragma unroll
    for (unsigned v = 0; v < VECTORS; v++) {
      high[v] = words[(4 + v) * TILE];
    }
#pragma unroll
    for (unsigned g = 0; g < GROUPS; g++) {
      codes[g] |= (high[g % VECTORS] >> (g / VECTORS * VECTORS) & MASK) << 4;
    }
  }
}

// What a code of step_codes exceeds its integer by.
template <class F>
constexpr int EXCESS = F::LOW == 8 ? 0 : F::EXCESS;

// The integer sub-scale and sub-minimum of the sub-block `sub` of `SUB` elements.
template <class F>
__device__ __forceinline__ int sub_scale(const uint8_t* scales, uint32_t sub, uint32_t output) {
  constexpr unsigned AT = F::MINIMUM == Minimum::Scaled ? 64 : 32;
  uint8_t byte = scales[AT + sub * TILE + output];
  return F::MINIMUM == Minimum::Scaled ? (int)byte : (int)(int8_t)byte;
}

template <class F>
__device__ __forceinline__ int sub_minimum(const uint8_t* scales, uint32_t sub, uint32_t output) {
  return scales[192 + sub * TILE + output];
}
