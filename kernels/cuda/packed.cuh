// The packed layout of quantised weights, the one the CPU backend makes at load (simd,
// src/matrix.rs): tiles of sixteen outputs; in a tile, for every 32 elements, bit planes of
// the codes whose vector v holds groups of four elements of each output; then the blocks' scales.
#pragma once

#include <cuda_fp16.h>
#include "portable.cuh"

constexpr unsigned TILE = 16;
// Elements of one step, and their groups of four.
constexpr unsigned STEP = 32;
constexpr unsigned GROUPS = STEP / 4;
// Bytes of a vector: a word for each output of a tile.
constexpr unsigned VECTOR = TILE * 4;

enum class Minimum { None, Added, Scaled };

// How a code becomes an integer: less its excess, or by a table.
enum class Values { Excess, Iq4, Mxfp4 };

// A quantised format: bits of the lower and the upper plane, what a code exceeds its integer by,
// elements of a block, elements that share a sub-scale (0: none), bytes of a block's scales.
template <unsigned Low, unsigned High, int Excess, unsigned BlockLength, unsigned SubLength,
          unsigned ScaleBytes, Minimum Min, Values Table = Values::Excess>
struct Format {
  static constexpr unsigned LOW = Low;
  static constexpr unsigned HIGH = High;
  static constexpr int EXCESS = Excess;
  static constexpr unsigned BLOCK = BlockLength;
  static constexpr unsigned SUB = SubLength;
  static constexpr unsigned SCALE_BYTES = ScaleBytes;
  static constexpr Minimum MINIMUM = Min;
  static constexpr Values VALUES = Table;
  static constexpr unsigned STEP_BYTES = STEP * TILE / 8 * (Low + High);
  // Elements that one of the activations' integer sums covers.
  static constexpr unsigned SUMS = BlockLength == 256 ? 16 : 32;
};

using Q4_0 = Format<4, 0, 8, 32, 0, 32, Minimum::None>;
using Q4_1 = Format<4, 0, 0, 32, 0, 64, Minimum::Added>;
using Q5_0 = Format<4, 1, 16, 32, 0, 32, Minimum::None>;
using Q5_1 = Format<4, 1, 0, 32, 0, 64, Minimum::Added>;
using Q8_0 = Format<8, 0, 128, 32, 0, 32, Minimum::None>;
using IQ4_NL = Format<4, 0, 0, 32, 0, 32, Minimum::None, Values::Iq4>;
using MXFP4 = Format<4, 0, 0, 32, 0, 16, Minimum::None, Values::Mxfp4>;
using Q2_K = Format<2, 0, 0, 256, 16, 320, Minimum::Scaled>;
using Q3_K = Format<2, 1, 4, 256, 16, 288, Minimum::None>;
using Q4_K = Format<4, 0, 0, 256, 32, 320, Minimum::Scaled>;
using Q5_K = Format<4, 1, 0, 256, 32, 320, Minimum::Scaled>;
using Q6_K = Format<4, 2, 32, 256, 16, 288, Minimum::None>;
using IQ4_XS = Format<4, 0, 0, 256, 32, 160, Minimum::None, Values::Iq4>;

// Where a tile's scales begin, and how long a tile is.
template <class F>
__device__ __forceinline__ size_t scales_offset(uint32_t inputs) {
  return (size_t)(inputs / STEP) * F::STEP_BYTES;
}

template <class F>
__device__ __forceinline__ size_t tile_bytes(uint32_t inputs) {
  return (scales_offset<F>(inputs) + (size_t)(inputs / F::BLOCK) * F::SCALE_BYTES + 63) / 64 * 64;
}

// What the codes of an output exceed their integers by, as far as group_pair leaves it to its
// caller; whole bytes and tables leave nothing.
template <class F>
constexpr int EXCESS = F::LOW == 8 || F::VALUES != Values::Excess ? 0 : F::EXCESS;

// The four tables' words: integers of the codes 0 to 3, 4 to 7, 8 to 11, 12 to 15.
template <Values V>
__device__ __forceinline__ uint4 table() {
  return V == Values::Iq4 ? make_uint4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u)
                          : make_uint4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
}

__device__ __forceinline__ uint32_t permute(uint32_t a, uint32_t b, uint32_t selectors) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selectors));
  return out;
}

// Four codes of four bits each, the low half of `codes`, as the table's bytes.
template <Values V>
__device__ __forceinline__ uint32_t look_up(uint32_t codes, uint32_t upper) {
  uint4 t = table<V>();
  return permute(permute(t.x, t.y, codes), permute(t.z, t.w, codes), upper);
}

// Both nibbles of each byte as the table's bytes.
template <Values V>
__device__ __forceinline__ void look_up_pair(uint32_t word, uint32_t& low, uint32_t& high) {
  uint32_t codes = word & 0x77777777u;
  // Which of both halves of the table: byte i of one, or of the other.
  uint32_t upper = (word >> 1 & 0x44444444u) | 0x32103210u;
  uint32_t first = look_up<V>(codes, upper);
  uint32_t second = look_up<V>(codes >> 16, upper >> 16);
  low = permute(first, second, 0x6420);
  high = permute(first, second, 0x7531);
}

// Where the bits of the groups `t` and `t + 4` of a step are: in which vectors of 64 bytes, and how
// far up in their words those of group t are; those of the other are four bits further up.
template <class F>
struct Places {
  uint32_t low, low_shift, high, high_shift;
  __device__ __forceinline__ explicit Places(uint32_t t) {
    low = F::LOW == 2 ? t % 2 : t;
    low_shift = F::LOW == 2 ? t / 2 * 2 : 0;
    high = F::LOW + (F::HIGH == 2 ? t % 2 : 0);
    high_shift = F::HIGH == 2 ? t / 2 * 2 : t;
  }
};

// The words that hold the groups t and t + 4 of one output: of the lower plane (two, where a code
// is a byte), and of the upper one.
struct GroupWords {
  uint32_t low, other, high;
};

// The codes of the groups t and t + 4, still with EXCESS.
template <class F>
__device__ __forceinline__ void group_pair(const GroupWords& words, const Places<F>& at,
                                           uint32_t& first, uint32_t& second) {
  if constexpr (F::VALUES != Values::Excess) {
    look_up_pair<F::VALUES>(words.low, first, second);
  } else if constexpr (F::LOW == 8) {
    first = words.low ^ 0x80808080u;
    second = words.other ^ 0x80808080u;
  } else {
    constexpr uint32_t MASK = F::LOW == 4 ? 0x0f0f0f0fu : 0x03030303u;
    first = words.low >> at.low_shift & MASK;
    second = words.low >> (at.low_shift + 4) & MASK;
  }
  if constexpr (F::HIGH > 0) {
    constexpr uint32_t MASK = F::HIGH == 2 ? 0x03030303u : 0x01010101u;
    first |= (words.high >> at.high_shift & MASK) << F::LOW;
    second |= (words.high >> (at.high_shift + 4) & MASK) << F::LOW;
  }
}

// Codes as signed bytes, without EXCESS.
template <class F>
__device__ __forceinline__ uint32_t without_excess(uint32_t codes) {
  if constexpr (EXCESS<F> == 0) {
    return codes;
  }
  // The upper bits keep the bytes apart while they are lowered.
  return ((codes | 0x80808080u) - EXCESS<F> * 0x01010101u) ^ 0x80808080u;
}

__device__ __forceinline__ float half_at(const uint8_t* bytes) {
  return __half2float(*(const __half*)bytes);
}

// Half of a power of two that is stored as its exponent, down to the subnormals.
__device__ __forceinline__ float half_of_power(uint32_t exponent) {
  return __fmul_rn(__uint_as_float(max(exponent << 23, 0x00400000u)), 0.5f);
}

// The scale of an output's block.
template <class F>
__device__ __forceinline__ float block_scale(const uint8_t* scales, uint32_t output) {
  if constexpr (F::VALUES == Values::Mxfp4) {
    return half_of_power(scales[output]);
  }
  return half_at(scales + output * 2);
}

// Where the integer sub-scales and sub-minimums of sub-block `sub` begin, a byte for each output.
template <class F>
__device__ __forceinline__ const uint8_t* sub_scales(const uint8_t* scales, uint32_t sub) {
  return scales + (F::MINIMUM == Minimum::Scaled ? 64 : 32) + sub * TILE;
}

template <class F>
__device__ __forceinline__ const uint8_t* sub_minimums(const uint8_t* scales, uint32_t sub) {
  // Those of sixteen elements share a byte with the sub-scale.
  return scales + (F::SUB == 16 ? 64 : 192) + sub * TILE;
}

// The sub-scale and the sub-minimum that are byte `i` of a word of them.
template <class F>
__device__ __forceinline__ int sub_scale(uint32_t word, uint32_t i) {
  uint32_t byte = word >> (8 * i);
  if constexpr (F::MINIMUM != Minimum::Scaled) {
    return (int)(int8_t)byte;
  }
  return byte & (F::SUB == 16 ? 15 : 255);
}

template <class F>
__device__ __forceinline__ int sub_minimum(uint32_t word, uint32_t i) {
  return word >> (8 * i + (F::SUB == 16 ? 4 : 0)) & (F::SUB == 16 ? 15 : 255);
}
