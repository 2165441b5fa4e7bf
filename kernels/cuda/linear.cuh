// Linear layers (rules 2 to 4): what the kernels for one row, for eight and for many share, and the
// dense ones. Each segment of the inner dimension is one chain; the segments' sums of an output are
// added in ascending order at the end.
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

template <class F>
__device__ __forceinline__ QuantisedRow quantised_row(const int8_t* q, const float* d,
                                                      const int32_t* sums, size_t row,
                                                      uint32_t inputs) {
  return {q + row * inputs, d + row * (inputs / F::BLOCK), sums + row * (inputs / F::SUMS)};
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

// Adds an output's sums in ascending order of segments, once all threads have put them down, and
// writes them. `partial` holds, for each segment and row, a tile's outputs.
template <unsigned ROWS>
__device__ __forceinline__ void add_segments(const float* partial, float* __restrict__ out,
                                             uint32_t outputs, uint32_t segments, uint32_t rows) {
  __syncthreads();
  // Blocks have at least 32 threads: one pass is enough for a single row.
  uint32_t i = threadIdx.x;
  do {
    uint32_t row = ROWS == 1 ? blockIdx.y : blockIdx.y * ROWS + i / TILE;
    uint32_t n = blockIdx.x * TILE + i % TILE;
    // A block may have more threads than a group of rows has outputs.
    if (n < outputs && i < ROWS * TILE && (ROWS == 1 || row < rows)) {
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

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
struct BFloat16 { uint16_t bits; };
__device__ __forceinline__ float to_float(BFloat16 x) {
  return __uint_as_float((uint32_t)x.bits << 16);
}

// Dense weights: for every element of the inner dimension the sixteen outputs' weights. Sixteen
// threads, one for each output, are one segment at a time.
template <class T, unsigned ROWS>
__device__ __forceinline__ void linear_dense(const uint8_t* __restrict__ tiles,
                                             const float* __restrict__ x, float* __restrict__ out,
                                             uint32_t outputs, uint32_t inputs, uint32_t rows) {
  extern __shared__ float partial[];
  size_t bytes = ((size_t)inputs * TILE * sizeof(T) + 63) / 64 * 64;
  const T* weights = (const T*)(tiles + blockIdx.x * bytes);
  const float* row[ROWS];
#pragma unroll
  for (unsigned r = 0; r < ROWS; r++) {
    row[r] = x + row_at<ROWS>(r, rows) * inputs;
  }
  uint32_t segments = (inputs + SEGMENT - 1) / SEGMENT;
  uint32_t output = threadIdx.x % TILE;
#pragma unroll 1
  for (uint32_t s = threadIdx.x / TILE; s < segments; s += blockDim.x / TILE) {
    float acc[ROWS] = {};
    uint32_t begin = s * SEGMENT;
    unrolled<ROWS == 1 ? 8 : 1>(begin, min(inputs, begin + SEGMENT), [&](uint32_t k) {
      float w = to_float(weights[(size_t)k * TILE + output]);
#pragma unroll
      for (unsigned r = 0; r < ROWS; r++) {
        acc[r] = __fmaf_rn(w, row[r][k], acc[r]);
      }
    });
#pragma unroll
    for (unsigned r = 0; r < ROWS; r++) {
      partial[(s * ROWS + r) * TILE + output] = acc[r];
    }
  }
  add_segments<ROWS>(partial, out, outputs, segments, rows);
}
