// The highest logits of a row by the one order of tokens: logit descending, then id ascending. A
// chunk of 1024 is sorted, and its first k go on; so often, until one chunk is left.
#include "portable.cuh"

// Entries of a chunk; a thread holds two of them.
constexpr unsigned RANKED = 1024;
constexpr unsigned RANKS_THREADS = RANKED / 2;

// A token and its logit as one integer that ascends as the rank does: the upper half is the logit,
// turned so that a higher one is a smaller integer, the lower half is the id.
typedef unsigned long long Key;
// Greater than every token's: a token that cannot be drawn, or none at all.
constexpr Key ABSENT = ~0ull;

__device__ __forceinline__ Key key(uint32_t token, float logit) {
  // Both zeros are one logit.
  uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  bool possible = logit > -__uint_as_float(0x7f800000u);
  return possible ? (Key)~ascending << 32 | token : ABSENT;
}

// Sorts a chunk, ascending, by Batcher's bitonic network.
__device__ __forceinline__ void sort(Key* keys) {
#pragma unroll 1
  for (uint32_t size = 2; size <= RANKED; size *= 2) {
#pragma unroll 1
    for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      uint32_t low = 2 * threadIdx.x - threadIdx.x % stride;
      Key a = keys[low], b = keys[low + stride];
      // Runs of `size` ascend and descend in turn.
      bool exchange = (low & size) == 0 ? a > b : a < b;
      keys[low] = exchange ? b : a;
      keys[low + stride] = exchange ? a : b;
    }
  }
  __syncthreads();
}

// Sorts the chunk that `load(i)` gives, for entry i of the row of n, and writes its first k.
template <class Load>
__device__ __forceinline__ void first_of_chunk(Key* __restrict__ out, uint32_t n, uint32_t k,
                                               Load load) {
  __shared__ Key keys[RANKED];
  uint32_t first = blockIdx.x * RANKED;
#pragma unroll
  for (uint32_t j = 0; j < RANKED; j += RANKS_THREADS) {
    uint32_t i = first + j + threadIdx.x;
    keys[j + threadIdx.x] = i < n ? load(i) : ABSENT;
  }
  sort(keys);
  if (threadIdx.x < k) {
    out[((size_t)blockIdx.y * gridDim.x + blockIdx.x) * k + threadIdx.x] = keys[threadIdx.x];
  }
}

// The first round. A block is (1024 logits, row).
extern "C" __global__ void __launch_bounds__(RANKS_THREADS)
top_k_logits(const float* __restrict__ logits, Key* __restrict__ keys, uint32_t n, uint32_t k) {
  const float* row = logits + (size_t)blockIdx.y * n;
  first_of_chunk(keys, n, k, [row](uint32_t i) { return key(i, row[i]); });
}

// Each further one. A block is (1024 keys, row).
extern "C" __global__ void __launch_bounds__(RANKS_THREADS)
top_k_keys(const Key* __restrict__ from, Key* __restrict__ keys, uint32_t n, uint32_t k) {
  const Key* row = from + (size_t)blockIdx.y * n;
  first_of_chunk(keys, n, k, [row](uint32_t i) { return row[i]; });
}
