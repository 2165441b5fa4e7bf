// The linear layers' entries for 64 rows at a time.
#include "matrix.cuh"

#define MATRIX(name, format)                                                                     \
  extern "C" __global__ void __launch_bounds__(MATRIX_THREADS, 3)                                \
  linear_##name##_x64(const uint8_t* __restrict__ tiles, const int8_t* __restrict__ q,           \
                      const float* __restrict__ d, const int32_t* __restrict__ sums,             \
                      float* __restrict__ out, uint32_t outputs, uint32_t inputs,                \
                      uint32_t rows) {                                                           \
    linear_matrix<format>(tiles, q, d, sums, out, outputs, inputs, rows);                        \
  }

MATRIX(q4_0, Q4_0)
MATRIX(q4_1, Q4_1)
MATRIX(q5_0, Q5_0)
MATRIX(q5_1, Q5_1)
MATRIX(q8_0, Q8_0)
MATRIX(iq4_nl, IQ4_NL)
MATRIX(mxfp4, MXFP4)
MATRIX(q2_k, Q2_K)
MATRIX(q3_k, Q3_K)
MATRIX(q4_k, Q4_K)
MATRIX(q5_k, Q5_K)
MATRIX(q6_k, Q6_K)
MATRIX(iq4_xs, IQ4_XS)
