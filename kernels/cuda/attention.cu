// The KV cache and paged attention (rules 6 and 8).
//
// The cache of a layer is a pool of blocks of block_size positions. A block holds, for each KV
// head, the keys with positions adjacent (dim x block_size) and the values with components
// adjacent (block_size x dim).
#include <cuda_fp16.h>
#include "portable.cuh"

constexpr unsigned ATTENTION_THREADS = CHECKING_THREADS;
constexpr unsigned ATTENTION_WARPS = ATTENTION_THREADS / WARP;
// A head's components are a multiple of this, and at most so many.
constexpr unsigned DIM_STEP = 16;
constexpr unsigned MAX_DIM = 256;
// Positions whose values are loaded together.
constexpr unsigned UNROLLED = 8;

__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(__half* to, float x) { *to = __float2half_rn(x); }
__device__ __forceinline__ float load(const float* from) { return *from; }
__device__ __forceinline__ float load(const __half* from) { return __half2float(*from); }

// Stores the keys and values of a row in its slot and notes whether a stored entry is not finite,
// an f16's overflow among it. A block is a row.
template <class T>
__device__ __forceinline__ void kv_store(const float* __restrict__ k, const float* __restrict__ v,
                                         const uint32_t* __restrict__ slots, T* __restrict__ keys,
                                         T* __restrict__ values, uint32_t* __restrict__ non_finite,
                                         uint32_t kv_heads, uint32_t dim, uint32_t block_size) {
  uint32_t width = kv_heads * dim;
  uint32_t slot = slots[blockIdx.x];
  size_t base = (size_t)(slot / block_size) * width * block_size;
  uint32_t offset = slot % block_size;
  bool found = false;
  for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
    size_t from = (size_t)blockIdx.x * width + i;
    T* key = keys + base + (size_t)i * block_size + offset;
    T* value = values + base + ((size_t)(i / dim) * block_size + offset) * dim + i % dim;
    store(key, k[from]);
    store(value, v[from]);
    T rounded;
    store(&rounded, k[from]);
    found = found || !is_finite(load(&rounded));
    store(&rounded, v[from]);
    found = found || !is_finite(load(&rounded));
  }
  if (any_in_block<T>(found) && threadIdx.x == 0) {
    non_finite[blockIdx.x] = 1;
  }
}

// The first position that the last of `length` sees; a window of 0 is none.
__device__ __forceinline__ uint32_t first_position(uint32_t length, uint32_t window) {
  return window == 0 ? 0 : length - min(length, window);
}

// One head of one row over one split of 256 positions: the greatest score, the sum of the
// exponentials, and the weighted sum of the values. A block is (split, head, row); a split with
// nothing unmasked is left out.
template <class T>
__device__ __forceinline__ void
attention_split(const float* __restrict__ q, const T* __restrict__ keys,
                const T* __restrict__ values, const uint32_t* __restrict__ positions,
                const uint32_t* __restrict__ tables, const uint32_t* __restrict__ block_tables,
                float* __restrict__ partial_m, float* __restrict__ partial_l,
                float* __restrict__ partial_o, uint32_t kv_heads, uint32_t dim,
                uint32_t block_size, uint32_t window, float scale) {
  __shared__ float query[MAX_DIM];
  __shared__ float weight[SPLIT];
  __shared__ float warp_max[ATTENTION_WARPS];
  __shared__ float scratch[WARP];
  uint32_t split = blockIdx.x, head = blockIdx.y, heads = gridDim.y, row = blockIdx.z;
  uint32_t length = positions[row] + 1;
  uint32_t start = split * SPLIT;
  uint32_t first = max(start, first_position(length, window));
  uint32_t end = min(length, start + SPLIT);
  if (first >= end) {
    return;
  }
  uint32_t kv_head = head / (heads / kv_heads);
  const uint32_t* table = block_tables + tables[row];
  size_t head_row = (size_t)row * heads + head;
  for (uint32_t i = threadIdx.x; i < dim; i += ATTENTION_THREADS) {
    query[i] = q[head_row * dim + i];
  }
  __syncthreads();

  float lowest = -__uint_as_float(0x7f800000u);
  float greatest = lowest;
  float scores[SPLIT / ATTENTION_THREADS];
#pragma unroll
  for (unsigned i = 0; i < SPLIT / ATTENTION_THREADS; i++) {
    uint32_t position = start + threadIdx.x + i * ATTENTION_THREADS;
    scores[i] = lowest;
    if (position >= first && position < end) {
      size_t block = (size_t)table[position / block_size] * kv_heads + kv_head;
      const T* key = keys + block * dim * block_size + position % block_size;
      float sum = 0.0f;
      uint32_t c = 0;
      do {
#pragma unroll
        for (unsigned j = 0; j < DIM_STEP; j++, c++, key += block_size) {
          sum = __fmaf_rn(query[c], load(key), sum);
        }
      } while (c < dim);
      scores[i] = __fmul_rn(sum, scale);
      greatest = fmaxf(greatest, scores[i]);
    }
  }
  for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
    greatest = fmaxf(greatest, __shfl_xor_sync(ALL_LANES, greatest, distance));
  }
  if (threadIdx.x % WARP == 0) {
    warp_max[threadIdx.x / WARP] = greatest;
  }
  __syncthreads();
#pragma unroll
  for (unsigned w = 0; w < ATTENTION_WARPS; w++) {
    greatest = fmaxf(greatest, warp_max[w]);
  }
#pragma unroll
  for (unsigned i = 0; i < SPLIT / ATTENTION_THREADS; i++) {
    weight[threadIdx.x + i * ATTENTION_THREADS] = exp_not_positive(__fsub_rn(scores[i], greatest));
  }
  __syncthreads();

  // A masked position's weight is +0, exp's value for -infinity: adding it changes no sum.
  float lane = 0.0f;
  if (threadIdx.x < ROW_LANES) {
#pragma unroll
    for (unsigned i = 0; i < SPLIT; i += ROW_LANES) {
      lane = __fadd_rn(lane, weight[threadIdx.x + i]);
    }
  }
  float sum = fold_row_lanes(lane, scratch);
  size_t part = head_row * gridDim.x + split;
  if (threadIdx.x == 0) {
    partial_m[part] = greatest;
    partial_l[part] = sum;
  }
  for (uint32_t c = threadIdx.x; c < dim; c += ATTENTION_THREADS) {
    float o = 0.0f;
    uint32_t position = first;
    do {
      // The positions of one KV block.
      uint32_t until = min(end, (position / block_size + 1) * block_size);
      size_t block = (size_t)table[position / block_size] * kv_heads + kv_head;
      const T* value = values + (block * block_size + position % block_size) * dim + c;
#pragma unroll 1
      for (; position + UNROLLED <= until; position += UNROLLED) {
#pragma unroll
        for (unsigned i = 0; i < UNROLLED; i++, value += dim) {
          o = __fmaf_rn(weight[position + i - start], load(value), o);
        }
      }
#pragma unroll 1
      for (; position < until; position++, value += dim) {
        o = __fmaf_rn(weight[position - start], load(value), o);
      }
    } while (position < end);
    partial_o[part * dim + c] = o;
  }
}

// Merges the splits of a head of a row in ascending order and divides. A block is (head, row).
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 4)
attention_merge(const float* __restrict__ partial_m, const float* __restrict__ partial_l,
                const float* __restrict__ partial_o, const uint32_t* __restrict__ positions,
                float* __restrict__ out, uint32_t dim, uint32_t window, uint32_t splits) {
  uint32_t length = positions[blockIdx.y] + 1;
  uint32_t first = first_position(length, window) / SPLIT;
  uint32_t last = (length - 1) / SPLIT;
  size_t head_row = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
  const float* m_of = partial_m + head_row * splits;
  const float* l_of = partial_l + head_row * splits;
  for (uint32_t c = threadIdx.x; c < dim; c += blockDim.x) {
    const float* o_of = partial_o + head_row * splits * dim + c;
    float m = m_of[first], l = l_of[first], o = o_of[(size_t)first * dim];
#pragma unroll 1
    for (uint32_t s = first + 1; s <= last; s++) {
      float greatest = fmaxf(m, m_of[s]);
      float a = exp_not_positive(__fsub_rn(m, greatest));
      float b = exp_not_positive(__fsub_rn(m_of[s], greatest));
      l = __fmaf_rn(l_of[s], b, __fmul_rn(l, a));
      o = __fmaf_rn(o_of[(size_t)s * dim], b, __fmul_rn(o, a));
      m = greatest;
    }
    out[head_row * dim + c] = __fdiv_rn(o, l);
  }
}

#define CACHE(name, type)                                                                         \
  extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 4)                                 \
  kv_store_##name(const float* __restrict__ k, const float* __restrict__ v,                       \
                  const uint32_t* __restrict__ slots, type* __restrict__ keys,                    \
                  type* __restrict__ values, uint32_t* __restrict__ non_finite,                   \
                  uint32_t kv_heads, uint32_t dim, uint32_t block_size) {                         \
    kv_store<type>(k, v, slots, keys, values, non_finite, kv_heads, dim, block_size);             \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 4)                                 \
  attention_split_##name(                                                                         \
      const float* __restrict__ q, const type* __restrict__ keys, const type* __restrict__ values, \
      const uint32_t* __restrict__ positions, const uint32_t* __restrict__ tables,                \
      const uint32_t* __restrict__ block_tables, float* __restrict__ partial_m,                   \
      float* __restrict__ partial_l, float* __restrict__ partial_o, uint32_t kv_heads,            \
      uint32_t dim, uint32_t block_size, uint32_t window, float scale) {                          \
    attention_split<type>(q, keys, values, positions, tables, block_tables, partial_m, partial_l, \
                          partial_o, kv_heads, dim, block_size, window, scale);                   \
  }

CACHE(f16, __half)
CACHE(f32, float)
