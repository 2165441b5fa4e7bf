// The linear layers' entries for a single row, and for eight at a time.
#include "rows8.cuh"
#include "vector.cuh"

// Blocks that a multiprocessor holds at least: 80 registers a thread for one row, 128 for eight; 64 and
// 168 for dense weights.
#define ARGUMENTS                                                                                \
  const uint8_t *__restrict__ tiles, const int8_t *__restrict__ q, const float *__restrict__ d,   \
      const int32_t *__restrict__ sums, float *__restrict__ out, uint32_t outputs,                \
      uint32_t inputs, uint32_t rows

#define QUANTISED(name, format)                                                                  \
  extern "C" __global__ void __launch_bounds__(LINEAR_THREADS, 6) linear_##name##_x1(ARGUMENTS) { \
    linear_vector<format>(tiles, q, d, sums, out, outputs, inputs);                              \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(ROWS8_THREADS, 2) linear_##name##_x8(ARGUMENTS) {  \
    linear_rows8<format>(tiles, q, d, sums, out, outputs, inputs, rows);                         \
  }

#define DENSE(name, type, rows_at_once, blocks)                                                  \
  extern "C" __global__ void __launch_bounds__(LINEAR_THREADS, blocks)                           \
  linear_##name##_x##rows_at_once(const uint8_t* __restrict__ tiles, const float* __restrict__ x, \
                                  float* __restrict__ out, uint32_t outputs, uint32_t inputs,    \
                                  uint32_t rows) {                                               \
    linear_dense<type, rows_at_once>(tiles, x, out, outputs, inputs, rows);                      \
  }

QUANTISED(q4_0, Q4_0)
QUANTISED(q4_1, Q4_1)
QUANTISED(q5_0, Q5_0)
QUANTISED(q5_1, Q5_1)
QUANTISED(q8_0, Q8_0)
QUANTISED(iq4_nl, IQ4_NL)
QUANTISED(mxfp4, MXFP4)
QUANTISED(q2_k, Q2_K)
QUANTISED(q3_k, Q3_K)
QUANTISED(q4_k, Q4_K)
QUANTISED(q5_k, Q5_K)
QUANTISED(q6_k, Q6_K)
QUANTISED(iq4_xs, IQ4_XS)
DENSE(f32, float, 1, 8)
DENSE(f32, float, 8, 3)
DENSE(f16, __half, 1, 8)
DENSE(f16, __half, 8, 3)
DENSE(bf16, BFloat16, 1, 8)
DENSE(bf16, BFloat16, 8, 3)
