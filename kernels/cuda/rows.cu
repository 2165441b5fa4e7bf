// Kernels over the rows of a step: normalisation, activation quantisation, and what is done
// element by element.
#include "portable.cuh"

// RMSNorm (rule 5). A block is a row; a thread is a virtual lane.
extern "C" __global__ void __launch_bounds__(64)
rms_norm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out,
         uint32_t n, float epsilon) {
  __shared__ float scratch[WARP];
  __shared__ float row_scale;
  const float* row = x + (size_t)blockIdx.x * n;
  float lane = 0.0f;
  for (uint32_t i = threadIdx.x; i < n; i += ROW_LANES) {
    lane = __fmaf_rn(row[i], row[i], lane);
  }
  float sum = fold_row_lanes(lane, scratch);
  if (threadIdx.x == 0) {
    float mean = __fdiv_rn(sum, __uint2float_rn(n));
    row_scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, epsilon)));
  }
  __syncthreads();
  float scale = row_scale;
  for (uint32_t i = threadIdx.x; i < n; i += ROW_LANES) {
    out[(size_t)blockIdx.x * n + i] = __fmul_rn(__fmul_rn(row[i], scale), weight[i]);
  }
}

// Blocks whose greatest magnitude is below 2^-100 become zeros (rule 2).
constexpr float TINY = 7.888609052210118e-31f;

// Quantises PER_LANE x 32 activations, PER_LANE adjacent ones in each lane of a warp.
template <unsigned PER_LANE>
__device__ __forceinline__ float quantise_block(const float (&x)[PER_LANE], int (&q)[PER_LANE]) {
  float amax = 0.0f;
  for (unsigned i = 0; i < PER_LANE; i++) {
    amax = fmaxf(amax, fabsf(x[i]));
  }
  for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(ALL_LANES, amax, distance));
  }
  bool tiny = amax < TINY;
  float inverse = __fdiv_rn(127.0f, amax);
  for (unsigned i = 0; i < PER_LANE; i++) {
    int rounded = __float2int_rn(__fmul_rn(x[i], inverse));
    q[i] = tiny ? 0 : max(-127, min(127, rounded));
  }
  return tiny ? 0.0f : __fdiv_rn(amax, 127.0f);
}

// Quantises blocks of 32 (rule 2): a warp is a block of activations. `sums` holds each block's
// sum of integers.
extern "C" __global__ void __launch_bounds__(256)
quantise_32(const float* __restrict__ x, int8_t* __restrict__ q, float* __restrict__ d,
            int32_t* __restrict__ sums, uint32_t blocks) {
  uint32_t block = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
  uint32_t lane = threadIdx.x % WARP;
  if (block >= blocks) {
    return;
  }
  size_t at = (size_t)block * WARP + lane;
  float value[1] = {x[at]};
  int rounded[1];
  float scale = quantise_block<1>(value, rounded);
  q[at] = (int8_t)rounded[0];
  int sum = rounded[0];
  for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(ALL_LANES, sum, distance);
  }
  if (lane == 0) {
    d[block] = scale;
    sums[block] = sum;
  }
}

// Quantises blocks of 256, for the K-quants: a warp is a block of activations. `sums` holds the
// sum of integers of every 16.
extern "C" __global__ void __launch_bounds__(256)
quantise_256(const float* __restrict__ x, int8_t* __restrict__ q, float* __restrict__ d,
             int32_t* __restrict__ sums, uint32_t blocks) {
  constexpr unsigned PER_LANE = 8;
  uint32_t block = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
  uint32_t lane = threadIdx.x % WARP;
  if (block >= blocks) {
    return;
  }
  size_t at = (size_t)block * 256 + lane * PER_LANE;
  float4 low = *(const float4*)(x + at);
  float4 high = *(const float4*)(x + at + 4);
  float value[PER_LANE] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  int rounded[PER_LANE];
  float scale = quantise_block<PER_LANE>(value, rounded);
  uint32_t packed[2] = {0, 0};
  int sum = 0;
  for (unsigned i = 0; i < PER_LANE; i++) {
    packed[i / 4] |= ((uint32_t)rounded[i] & 0xffu) << (8 * (i % 4));
    sum += rounded[i];
  }
  *(uint2*)(q + at) = make_uint2(packed[0], packed[1]);
  sum += __shfl_xor_sync(ALL_LANES, sum, 1);
  if (lane % 2 == 0) {
    sums[(size_t)block * 16 + lane / 2] = sum;
  }
  if (lane == 0) {
    d[block] = scale;
  }
}

// a + b.
extern "C" __global__ void __launch_bounds__(256)
add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out,
    uint32_t n) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = __fadd_rn(a[i], b[i]);
  }
}

// silu(gate) * up (rule 7).
extern "C" __global__ void __launch_bounds__(256)
silu_mul(const float* __restrict__ gate, const float* __restrict__ up, float* __restrict__ out,
         uint32_t n) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float x = gate[i];
    float silu = __fdiv_rn(x, __fadd_rn(1.0f, portable_exp(-x)));
    out[i] = __fmul_rn(silu, up[i]);
  }
}

constexpr float GELU_LINEAR = 1.5957691f;
constexpr float GELU_CUBIC = 0.071354814f;

// gelu(gate) * up, in its tanh form (rule 7).
extern "C" __global__ void __launch_bounds__(256)
gelu_mul(const float* __restrict__ gate, const float* __restrict__ up, float* __restrict__ out,
         uint32_t n) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float x = gate[i];
    float u = __fmul_rn(x, __fmaf_rn(__fmul_rn(x, x), GELU_CUBIC, GELU_LINEAR));
    float gelu = __fdiv_rn(x, __fadd_rn(1.0f, portable_exp(-u)));
    out[i] = __fmul_rn(gelu, up[i]);
  }
}

// Rotates pairs in place (rule 7). A block is a row; `x` holds rows of heads x dim. Pair p of a
// head is its elements p * stride and p * stride + offset: (2, 1) for adjacent pairs,
// (1, dim / 2) for halves. `cosines` and `sines` hold dim / 2 values for each position.
extern "C" __global__ void __launch_bounds__(256)
rope(float* __restrict__ x, const float* __restrict__ cosines, const float* __restrict__ sines,
     const uint32_t* __restrict__ positions, uint32_t heads, uint32_t dim, uint32_t stride,
     uint32_t offset) {
  uint32_t half = dim / 2;
  float* row = x + (size_t)blockIdx.x * heads * dim;
  size_t table = (size_t)positions[blockIdx.x] * half;
  for (uint32_t i = threadIdx.x; i < heads * half; i += blockDim.x) {
    uint32_t pair = i % half;
    uint32_t at = i / half * dim + pair * stride;
    float c = cosines[table + pair];
    float s = sines[table + pair];
    float x0 = row[at];
    float x1 = row[at + offset];
    row[at] = __fsub_rn(__fmul_rn(x0, c), __fmul_rn(x1, s));
    row[at + offset] = __fadd_rn(__fmul_rn(x0, s), __fmul_rn(x1, c));
  }
}

// Notes rows that have a value which is not finite (rule 11). A block is a row.
extern "C" __global__ void __launch_bounds__(CHECKING_THREADS)
check_rows(const float* __restrict__ x, uint32_t* __restrict__ non_finite, uint32_t n) {
  const float* row = x + (size_t)blockIdx.x * n;
  bool found = false;
  for (uint32_t i = threadIdx.x; i < n; i += CHECKING_THREADS) {
    found = found || !is_finite(row[i]);
  }
  if (any_in_block<float>(found) && threadIdx.x == 0) {
    non_finite[blockIdx.x] = 1;
  }
}

// Row `rows[i]` of x becomes row i. A block is a row of the result.
extern "C" __global__ void __launch_bounds__(256)
gather_rows(const float* __restrict__ x, const uint32_t* __restrict__ rows,
            float* __restrict__ out, uint32_t n) {
  const float* row = x + (size_t)rows[blockIdx.x] * n;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    out[(size_t)blockIdx.x * n + i] = row[i];
  }
}
