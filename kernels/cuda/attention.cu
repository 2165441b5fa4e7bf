// The KV cache and paged attention (rules 6 and 8).
//
// The cache of a layer is a pool of blocks of block_size positions. A block holds, for each KV
// head, the keys with positions adjacent (dim x block_size) and the values with components
// adjacent (block_size x dim).
#include <cuda_fp16.h>
#include "copies.cuh"
#include "portable.cuh"

constexpr unsigned ATTENTION_THREADS = CHECKING_THREADS;
constexpr unsigned ATTENTION_WARPS = ATTENTION_THREADS / WARP;
// A head's components are a multiple of this, and at most 256.
constexpr unsigned DIM_STEP = 16;

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

// Positions that are copied together: they lie in one KV block.
constexpr unsigned GROUP = 16;
constexpr unsigned SPLIT_GROUPS = SPLIT / GROUP;
// Bytes of keys or values that shared memory holds, two times: of at most 64 positions.
constexpr unsigned STAGE_BYTES = 16384;
constexpr unsigned MAX_CHUNK = 64;

__device__ __forceinline__ float2 load_pair(const float* from) { return *(const float2*)from; }
__device__ __forceinline__ float2 load_pair(const __half* from) {
  return __half22float2(*(const __half2*)from);
}

// What a block does: some query heads of a row that share a KV head, over the positions first..end
// of a split that begins at `start`.
struct Share {
  uint32_t start, first, end, heads, dim, block_size;
  // Positions of a chunk, and where the first one begins.
  uint32_t chunk, lowest;

  // Without the heads. `length` is the row's positions, `size` an element's bytes.
  __device__ __forceinline__ Share(uint32_t length, uint32_t window, uint32_t dim,
                                   uint32_t block_size, uint32_t size)
      : start(blockIdx.x * SPLIT), dim(dim), block_size(block_size), chunk(MAX_CHUNK) {
    first = max(start, first_position(length, window));
    end = min(length, start + SPLIT);
    lowest = first / GROUP * GROUP;
    while (chunk * dim * size > STAGE_BYTES) {
      chunk /= 2;
    }
  }

  __device__ __forceinline__ uint32_t until(uint32_t from) const { return min(from + chunk, end); }
};

__device__ __forceinline__ void load_queries(float* to, const float* queries, uint32_t count) {
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < count; i += ATTENTION_THREADS) {
    to[i] = queries[i];
  }
}

// Where in the pools the split's groups of positions are, for one KV head.
__device__ __forceinline__ void find_groups(size_t* key_bases, size_t* value_bases,
                                            const Share& share, const uint32_t* table,
                                            uint32_t kv_heads, uint32_t kv_head) {
  uint32_t position = share.start + threadIdx.x * GROUP;
  if (threadIdx.x < SPLIT_GROUPS && position >= share.lowest && position < share.end) {
    size_t block = (size_t)table[position / share.block_size] * kv_heads + kv_head;
    uint32_t offset = position % share.block_size;
    key_bases[threadIdx.x] = block * share.dim * share.block_size + offset;
    value_bases[threadIdx.x] = (block * share.block_size + offset) * share.dim;
  }
}

// Begins to copy keys, dim rows of a chunk's positions, or values, a row of dim for each position.
// Nothing behind the last position is read: nobody may have written there yet.
template <class T, bool KEYS>
__device__ __forceinline__ void stage(T* to, const T* pool, const size_t* bases, const Share& share,
                                      uint32_t from) {
  constexpr unsigned UNIT = 16 / sizeof(T);
  constexpr unsigned ROW_UNITS = GROUP / UNIT;
  uint32_t until = share.until(from);
#pragma unroll 1
  for (uint32_t at = from; at < until; at += GROUP) {
    const T* group = pool + bases[(at - share.start) / GROUP];
    uint32_t place = at - from;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < share.dim * ROW_UNITS; i += ATTENTION_THREADS) {
      if constexpr (KEYS) {
        uint32_t c = i / ROW_UNITS, unit = i % ROW_UNITS * UNIT;
        if (at + unit < until) {
          copy_async_filled(to + c * share.chunk + place + unit, group + c * share.block_size + unit,
                            min(until - at - unit, UNIT) * sizeof(T));
        }
      } else if (i * UNIT < (until - at) * share.dim) {
        copy_async<16>(to + place * share.dim + i * UNIT, group + i * UNIT);
      }
    }
  }
}

// The products of the queries with a chunk of keys: each is a chain over the head's dimensions.
template <class T>
__device__ __forceinline__ void score(const T* keys, const float* queries, float* scores,
                                      const Share& share, uint32_t from, float scale) {
  uint32_t pairs = share.chunk / 2, until = share.until(from);
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < share.heads * pairs; i += ATTENTION_THREADS) {
    uint32_t head = i / pairs, position = i % pairs * 2;
    if (from + position < until) {
      const float* query = queries + head * share.dim;
      const T* key = keys + position;
      float x = 0.0f, y = 0.0f;
      uint32_t c = 0;
#pragma unroll 1
      do {
#pragma unroll
        for (unsigned j = 0; j < DIM_STEP; j++, key += share.chunk) {
          float2 pair = load_pair(key);
          x = __fmaf_rn(query[c + j], pair.x, x);
          y = __fmaf_rn(query[c + j], pair.y, y);
        }
        c += DIM_STEP;
      } while (c < share.dim);
      float2* to = (float2*)(scores + head * SPLIT + (from - share.start + position));
      *to = make_float2(__fmul_rn(x, scale), __fmul_rn(y, scale));
    }
  }
}

// A warp's head: its scores become weights, whose greatest score and sum are written.
__device__ __forceinline__ void weigh(float* scores, const Share& share, float* partial_m,
                                      float* partial_l) {
  constexpr unsigned TURNS = SPLIT / WARP;
  uint32_t lane = threadIdx.x % WARP;
  float lowest = -__uint_as_float(0x7f800000u), greatest = lowest;
  float mine[TURNS];
#pragma unroll
  for (unsigned i = 0; i < TURNS; i++) {
    uint32_t position = share.start + i * WARP + lane;
    mine[i] = lowest;
    if (position >= share.first && position < share.end) {
      mine[i] = scores[i * WARP + lane];
    }
    greatest = fmaxf(greatest, mine[i]);
  }
  for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
    greatest = fmaxf(greatest, __shfl_xor_sync(ALL_LANES, greatest, distance));
  }
  // The virtual lanes of rule 5: this lane's, and the one 32 further on. A masked position's weight
  // is +0, exp's value for -infinity: adding it changes no sum.
  float sums[2] = {0.0f, 0.0f};
#pragma unroll
  for (unsigned i = 0; i < TURNS; i++) {
    float weight = exp_not_positive(__fsub_rn(mine[i], greatest));
    scores[i * WARP + lane] = weight;
    sums[i % 2] = __fadd_rn(sums[i % 2], weight);
  }
  float sum = __fadd_rn(sums[0], sums[1]);
  for (unsigned width = WARP / 2; width > 0; width /= 2) {
    sum = __fadd_rn(sum, __shfl_down_sync(ALL_LANES, sum, width));
  }
  if (lane == 0) {
    *partial_m = greatest;
    *partial_l = sum;
  }
}

// Adds a chunk of values times their weights: each component of each head is a chain over the
// positions, ascending, that goes on from chunk to chunk. The last one writes it.
template <class T>
__device__ __forceinline__ void mix(const T* values, const float* weights, float* mixed,
                                    const Share& share, uint32_t from, float* partial_o,
                                    size_t head_stride) {
  uint32_t pairs = share.dim / 2;
  uint32_t begin = max(from, share.first), until = share.until(from);
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < share.heads * pairs; i += ATTENTION_THREADS) {
    uint32_t head = i / pairs, c = i % pairs * 2;
    float2* sums = (float2*)(mixed + head * share.dim + c);
    float2 o = from == share.lowest ? make_float2(0.0f, 0.0f) : *sums;
    const float* weight = weights + head * SPLIT + (begin - share.start);
    const T* value = values + (begin - from) * share.dim + c;
    uint32_t left = until - begin;
#pragma unroll 4
    do {
      float2 pair = load_pair(value);
      o.x = __fmaf_rn(*weight, pair.x, o.x);
      o.y = __fmaf_rn(*weight, pair.y, o.y);
      weight++;
      value += share.dim;
    } while (--left > 0);
    if (until < share.end) {
      *sums = o;
    } else {
      float* to = partial_o + head * head_stride + c;
      to[0] = o.x;
      to[1] = o.y;
    }
  }
}

// The query heads of a row that share a KV head over one split of 256 positions: for each the
// greatest score, the sum of the exponentials, and the weighted sum of the values. A block is
// (split, KV head and part of its query heads, row); a split with nothing unmasked is left out.
// Keys, then values, go through shared memory by asynchronous copies, a chunk ahead.
template <class T>
__device__ __forceinline__ void
attention_split(const float* __restrict__ q, const T* __restrict__ keys,
                const T* __restrict__ values, const uint32_t* __restrict__ positions,
                const uint32_t* __restrict__ tables, const uint32_t* __restrict__ block_tables,
                float* __restrict__ partial_m, float* __restrict__ partial_l,
                float* __restrict__ partial_o, uint32_t heads, uint32_t kv_heads, uint32_t dim,
                uint32_t block_size, uint32_t window, float scale) {
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ size_t key_bases[SPLIT_GROUPS], value_bases[SPLIT_GROUPS];
  uint32_t split = blockIdx.x, row = blockIdx.z;
  Share share(positions[row] + 1, window, dim, block_size, sizeof(T));
  if (share.first >= share.end) {
    return;
  }
  // The KV head's query heads, in equal parts but for the last.
  uint32_t parts = gridDim.y / kv_heads, kv_head = blockIdx.y / parts;
  uint32_t group = heads / kv_heads, each = (group + parts - 1) / parts;
  uint32_t skipped = blockIdx.y % parts * each;
  share.heads = min(each, group - skipped);
  size_t head_row = (size_t)row * heads + kv_head * group + skipped;

  float* scores = (float*)(memory + 2 * STAGE_BYTES);
  float* mixed = scores + each * SPLIT;
  load_queries(mixed, q + head_row * dim, share.heads * dim);
  find_groups(key_bases, value_bases, share, block_tables + tables[row], kv_heads, kv_head);
  uint32_t chunks = (share.end - share.lowest + share.chunk - 1) / share.chunk;
  size_t part = head_row * gridDim.x + split;
  uint32_t step = 0;
#pragma unroll 1
  do {
    // The chunk to compute is there for all, and all have left the one whose place the next takes.
    wait_for_copies<0>();
    __syncthreads();
    T* to = (T*)(memory + step % 2 * STAGE_BYTES);
    uint32_t from = share.lowest + step % chunks * share.chunk;
    if (step < chunks) {
      stage<T, true>(to, keys, key_bases, share, from);
    } else if (step < 2 * chunks) {
      stage<T, false>(to, values, value_bases, share, from);
    }
    commit_copies();
    if (step > 0) {
      const T* staged = (const T*)(memory + (step - 1) % 2 * STAGE_BYTES);
      uint32_t computed = share.lowest + (step - 1) % chunks * share.chunk;
      if (step <= chunks) {
        score<T>(staged, mixed, scores, share, computed, scale);
      } else {
        mix<T>(staged, scores, mixed, share, computed, partial_o + part * dim,
               (size_t)gridDim.x * dim);
      }
    }
    if (step == chunks) {
      __syncthreads();
#pragma unroll 1
      for (uint32_t h = threadIdx.x / WARP; h < share.heads; h += ATTENTION_WARPS) {
        size_t at = part + (size_t)h * gridDim.x;
        weigh(scores + h * SPLIT, share, partial_m + at, partial_l + at);
      }
    }
  } while (++step <= 2 * chunks);
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
      float* __restrict__ partial_l, float* __restrict__ partial_o, uint32_t heads,               \
      uint32_t kv_heads, uint32_t dim, uint32_t block_size, uint32_t window, float scale) {         \
    attention_split<type>(q, keys, values, positions, tables, block_tables, partial_m, partial_l, \
                          partial_o, heads, kv_heads, dim, block_size, window, scale);                   \
  }

CACHE(f16, __half)
CACHE(f32, float)
