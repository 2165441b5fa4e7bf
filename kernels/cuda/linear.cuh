// Linear layers (rules 2 to 4). A block of threads is one tile of outputs and up to ROWS rows;
// sixteen threads, one for each output, are one segment of the inner dimension at a time. Each
// segment's sum is one chain; the sums of an output are added in ascending order at the end.
#pragma once

#include "packed.cuh"

// Threads of a block at most: eight segments at a time.
constexpr unsigned LINEAR_THREADS = 128;

// One row of quantised activations: integers, blocks' scales, and sums of integers (of every 32,
// or of every 16 where blocks are of 256).
struct QuantisedRow {
  const int8_t* q;
  const float* d;
  const int32_t* sums;
};

__device__ __forceinline__ int dot4(uint32_t codes, uint32_t q, int sum) {
  return __dp4a((int)codes, (int)q, sum);
}

// The step's products with one row, the first and the second sixteen elements.
__device__ __forceinline__ void step_dot(const uint32_t (&codes)[GROUPS], const int8_t* q,
                                         int& first, int& second) {
  uint4 low = *(const uint4*)q;
  uint4 high = *(const uint4*)(q + 16);
  first = dot4(codes[3], low.w, dot4(codes[2], low.z, dot4(codes[1], low.y, dot4(codes[0], low.x, 0))));
  second = dot4(codes[7], high.w,
                dot4(codes[6], high.z, dot4(codes[5], high.y, dot4(codes[4], high.x, 0))));
}

// Blocks of 32: one step each.
template <class F, unsigned ROWS>
__device__ __forceinline__ void block_32(const uint8_t* quants, const uint8_t* scales,
                                         uint32_t block, uint32_t output,
                                         const QuantisedRow (&x)[ROWS], float (&acc)[ROWS]) {
  uint32_t codes[GROUPS];
  step_codes<F>(quants + (size_t)block * F::STEP_BYTES, output, codes);
  const uint8_t* scale = scales + (size_t)block * F::SCALE_BYTES + output * 2;
  float d = half_at(scale);
  float minimum = F::MINIMUM == Minimum::Added ? half_at(scale + 32) : 0.0f;
#pragma unroll
  for (unsigned r = 0; r < ROWS; r++) {
    int first, second;
    step_dot(codes, x[r].q + (size_t)block * STEP, first, second);
    int dot = first + second;
    if (EXCESS<F> != 0) {
      dot -= EXCESS<F> * x[r].sums[block];
    }
    float dx = x[r].d[block];
    acc[r] = __fmaf_rn(__fmul_rn(d, dx), __int2float_rn(dot), acc[r]);
    if constexpr (F::MINIMUM == Minimum::Added) {
      float sum = __fmul_rn(dx, __int2float_rn(x[r].sums[block]));
      acc[r] = __fmaf_rn(minimum, sum, acc[r]);
    }
  }
}

// Blocks of 256: eight steps, whose sub-scales multiply in integers.
template <class F, unsigned ROWS>
__device__ __forceinline__ void block_256(const uint8_t* quants, const uint8_t* scales,
                                          uint32_t block, uint32_t output,
                                          const QuantisedRow (&x)[ROWS], float (&acc)[ROWS]) {
  constexpr unsigned STEPS = 256 / STEP;
  const uint8_t* scale = scales + (size_t)block * F::SCALE_BYTES;
  int dot[ROWS] = {};
  int low[ROWS] = {};
  for (unsigned s = 0; s < STEPS; s++) {
    uint32_t codes[GROUPS];
    size_t step = (size_t)block * STEPS + s;
    step_codes<F>(quants + step * F::STEP_BYTES, output, codes);
    int first_scale = sub_scale<F>(scale, F::SUB == 32 ? s : 2 * s, output);
    int second_scale = F::SUB == 32 ? first_scale : sub_scale<F>(scale, 2 * s + 1, output);
    int minimum = F::MINIMUM == Minimum::Scaled ? sub_minimum<F>(scale, s, output) : 0;
#pragma unroll
    for (unsigned r = 0; r < ROWS; r++) {
      int first, second;
      step_dot(codes, x[r].q + step * STEP, first, second);
      if (EXCESS<F> != 0 || F::MINIMUM == Minimum::Scaled) {
        int2 sums = *(const int2*)(x[r].sums + step * 2);
        first -= EXCESS<F> * sums.x;
        second -= EXCESS<F> * sums.y;
        low[r] += minimum * (sums.x + sums.y);
      }
      dot[r] += first_scale * first + second_scale * second;
    }
  }
  float d = half_at(scale + output * 2);
  float minimum = F::MINIMUM == Minimum::Scaled ? half_at(scale + 32 + output * 2) : 0.0f;
#pragma unroll
  for (unsigned r = 0; r < ROWS; r++) {
    float dx = x[r].d[block];
    acc[r] = __fmaf_rn(__fmul_rn(d, dx), __int2float_rn(dot[r]), acc[r]);
    if constexpr (F::MINIMUM == Minimum::Scaled) {
      acc[r] = __fmaf_rn(__fmul_rn(-minimum, dx), __int2float_rn(low[r]), acc[r]);
    }
  }
}

// Calls step(k) for each k from `begin`, which is below `end`; UNROLLED at a time as long as so many
// are left, so that their loads are under way together.
template <unsigned UNROLLED, class Step>
__device__ __forceinline__ void unrolled(uint32_t begin, uint32_t end, Step step) {
  uint32_t k = begin;
  if constexpr (UNROLLED > 1) {
#pragma unroll 1
    for (; k + UNROLLED <= end; k += UNROLLED) {
#pragma unroll
      for (unsigned i = 0; i < UNROLLED; i++) {
        step(k + i);
      }
    }
#pragma unroll 1
    for (; k < end; k++) {
      step(k);
    }
  } else {
#pragma unroll 1
    do {
      step(k);
    } while (++k < end);
  }
}

// The row of this block's r-th: one beyond the last repeats the last, and is not written.
template <unsigned ROWS>
__device__ __forceinline__ size_t row_at(unsigned r, uint32_t rows) {
  return ROWS == 1 ? blockIdx.y : min(blockIdx.y * ROWS + r, rows - 1);
}

// Puts each segment's sums down, then adds an output's in ascending order and writes them.
template <unsigned ROWS, class Segment>
__device__ __forceinline__ void sum_segments(float* __restrict__ out, uint32_t outputs,
                                             uint32_t segments, uint32_t rows, Segment segment_sum) {
  extern __shared__ float partial[];
  uint32_t output = threadIdx.x % TILE;
#pragma unroll 1
  for (uint32_t s = threadIdx.x / TILE; s < segments; s += blockDim.x / TILE) {
    float acc[ROWS] = {};
    segment_sum(s, output, acc);
#pragma unroll
    for (unsigned r = 0; r < ROWS; r++) {
      partial[(s * ROWS + r) * TILE + output] = acc[r];
    }
  }
  __syncthreads();
  // Blocks have at least 32 threads: one pass is enough for a single row.
  uint32_t i = threadIdx.x;
  do {
    uint32_t row = ROWS == 1 ? blockIdx.y : blockIdx.y * ROWS + i / TILE;
    uint32_t n = blockIdx.x * TILE + i % TILE;
    if (n < outputs && (ROWS == 1 ? i < TILE : row < rows)) {
      float total = partial[i];
#pragma unroll 1
      for (uint32_t s = 1; s < segments; s++) {
        total = __fadd_rn(total, partial[s * ROWS * TILE + i]);
      }
      out[(size_t)row * outputs + n] = total;
    }
    i += blockDim.x;
  } while (ROWS > 1 && i < ROWS * TILE);
}

template <class F, unsigned ROWS>
__device__ __forceinline__ void linear(const uint8_t* __restrict__ tiles,
                                       const int8_t* __restrict__ q, const float* __restrict__ d,
                                       const int32_t* __restrict__ sums, float* __restrict__ out,
                                       uint32_t outputs, uint32_t inputs, uint32_t rows) {
  const uint8_t* quants = tiles + blockIdx.x * tile_bytes<F>(inputs);
  const uint8_t* scales = quants + scales_offset<F>(inputs);
  constexpr unsigned SUMS = F::BLOCK == 256 ? 16 : 32;
  QuantisedRow x[ROWS];
#pragma unroll
  for (unsigned r = 0; r < ROWS; r++) {
    size_t row = row_at<ROWS>(r, rows);
    x[r] = {q + row * inputs, d + row * (inputs / F::BLOCK), sums + row * (inputs / SUMS)};
  }
  constexpr uint32_t BLOCKS = SEGMENT / F::BLOCK;
  constexpr unsigned UNROLLED = ROWS == 1 && F::BLOCK == 32 ? 4 : 1;
  uint32_t blocks = inputs / F::BLOCK;
  uint32_t segments = (blocks + BLOCKS - 1) / BLOCKS;
  sum_segments<ROWS>(out, outputs, segments, rows,
                     [&](uint32_t segment, uint32_t output, float(&acc)[ROWS]) {
    uint32_t begin = segment * BLOCKS;
    unrolled<UNROLLED>(begin, min(blocks, begin + BLOCKS), [&](uint32_t block) {
      if constexpr (F::BLOCK == 256) {
        block_256<F, ROWS>(quants, scales, block, output, x, acc);
      } else {
        block_32<F, ROWS>(quants, scales, block, output, x, acc);
      }
    });
  });
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
struct BFloat16 { uint16_t bits; };
__device__ __forceinline__ float to_float(BFloat16 x) {
  return __uint_as_float((uint32_t)x.bits << 16);
}

// Dense weights: for every element of the inner dimension the sixteen outputs' weights.
template <class T, unsigned ROWS>
__device__ __forceinline__ void linear_dense(const uint8_t* __restrict__ tiles,
                                             const float* __restrict__ x, float* __restrict__ out,
                                             uint32_t outputs, uint32_t inputs, uint32_t rows) {
  size_t bytes = ((size_t)inputs * TILE * sizeof(T) + 63) / 64 * 64;
  const T* weights = (const T*)(tiles + blockIdx.x * bytes);
  const float* row[ROWS];
#pragma unroll
  for (unsigned r = 0; r < ROWS; r++) {
    row[r] = x + row_at<ROWS>(r, rows) * inputs;
  }
  uint32_t segments = (inputs + SEGMENT - 1) / SEGMENT;
  sum_segments<ROWS>(out, outputs, segments, rows,
                     [&](uint32_t segment, uint32_t output, float(&acc)[ROWS]) {
    uint32_t begin = segment * SEGMENT;
    unrolled<ROWS == 1 ? 8 : 1>(begin, min(inputs, begin + SEGMENT), [&](uint32_t k) {
      float w = to_float(weights[(size_t)k * TILE + output]);
#pragma unroll
      for (unsigned r = 0; r < ROWS; r++) {
        acc[r] = __fmaf_rn(w, row[r][k], acc[r]);
      }
    });
  });
}
