// The linear layers' entries: for each format one for a single row and one for eight at a time.
#include "linear.cuh"

// Blocks that a multiprocessor holds at least: 64 registers a thread, and 168.
template <unsigned ROWS>
constexpr unsigned BLOCKS_AT_ONCE = ROWS == 1 ? 8 : 3;

#define QUANTISED(name, format, rows_at_once)                                                     \
  extern "C" __global__ void __launch_bounds__(LINEAR_THREADS, BLOCKS_AT_ONCE<rows_at_once>)                                \
  linear_##name##_x##rows_at_once(                                                                \
      const uint8_t* __restrict__ tiles, const int8_t* __restrict__ q, const float* __restrict__ d, \
      const int32_t* __restrict__ sums, float* __restrict__ out, uint32_t outputs,                \
      uint32_t inputs, uint32_t rows) {                                                           \
    linear<format, rows_at_once>(tiles, q, d, sums, out, outputs, inputs, rows);                  \
  }

#define DENSE(name, type, rows_at_once)                                                           \
  extern "C" __global__ void __launch_bounds__(LINEAR_THREADS, BLOCKS_AT_ONCE<rows_at_once>)                                \
  linear_##name##_x##rows_at_once(const uint8_t* __restrict__ tiles, const float* __restrict__ x, \
                                  float* __restrict__ out, uint32_t outputs, uint32_t inputs,     \
                                  uint32_t rows) {                                                \
    linear_dense<type, rows_at_once>(tiles, x, out, outputs, inputs, rows);                       \
  }

QUANTISED(q4_0, Q4_0, 1)
QUANTISED(q4_0, Q4_0, 8)
QUANTISED(q4_1, Q4_1, 1)
QUANTISED(q4_1, Q4_1, 8)
QUANTISED(q5_0, Q5_0, 1)
QUANTISED(q5_0, Q5_0, 8)
QUANTISED(q5_1, Q5_1, 1)
QUANTISED(q5_1, Q5_1, 8)
QUANTISED(q8_0, Q8_0, 1)
QUANTISED(q8_0, Q8_0, 8)
QUANTISED(q4_k, Q4_K, 1)
QUANTISED(q4_k, Q4_K, 8)
QUANTISED(q5_k, Q5_K, 1)
QUANTISED(q5_k, Q5_K, 8)
QUANTISED(q6_k, Q6_K, 1)
QUANTISED(q6_k, Q6_K, 8)
DENSE(f32, float, 1)
DENSE(f32, float, 8)
DENSE(f16, __half, 1)
DENSE(f16, __half, 8)
DENSE(bf16, BFloat16, 1)
DENSE(bf16, BFloat16, 8)
