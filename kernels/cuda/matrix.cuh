// Quantised linear layers for many rows (prefill, large batches): a block is four tiles of outputs
// and 64 rows. Weights, activations and scales go through shared memory by asynchronous copies,
// chunks of 64 elements of the inner dimension, three chunks ahead of the one that is computed;
// a warp multiplies one tile with all rows.
#pragma once

#include "tensor.cuh"

constexpr unsigned MATRIX_TILES = 4;
constexpr unsigned MATRIX_THREADS = MATRIX_TILES * WARP;
constexpr unsigned MATRIX_ROWS = 64;
constexpr unsigned MATRIX_COLUMNS = MATRIX_ROWS / COLUMNS;
// Elements of a chunk, and its steps.
constexpr unsigned CHUNK = 64;
constexpr unsigned CHUNK_STEPS = CHUNK / STEP;
constexpr unsigned SEGMENT_CHUNKS = SEGMENT / CHUNK;
constexpr unsigned SUPERBLOCK_CHUNKS = 256 / CHUNK;
// Chunks that shared memory holds.
constexpr unsigned STAGES = 4;
// Bytes from a row of a chunk to the next: an odd number of 16 bytes, so that the eight rows that a
// warp reads at once lie in different banks.
constexpr unsigned ROW_STRIDE = CHUNK + 16;

// Bytes of the scales of a tile that go with a chunk, or with a block of 256.
template <class F>
constexpr unsigned STAGED_SCALES = F::BLOCK == 256 ? F::SCALE_BYTES : CHUNK_STEPS * F::SCALE_BYTES;
// How many of those there are at once.
template <class F>
constexpr unsigned SCALE_STAGES = F::BLOCK == 256 ? 2 : STAGES;
// Blocks of activations that go with a chunk, or one of 256.
template <class F>
constexpr unsigned STAGED_BLOCKS = F::BLOCK == 256 ? 1 : CHUNK_STEPS;
// Sums of integers of a row that go with a chunk.
template <class F>
constexpr unsigned STAGED_SUMS = F::MINIMUM == Minimum::None ? 0 : CHUNK / F::SUMS;

template <class F>
struct __align__(16) Staged {
  int8_t q[STAGES][MATRIX_ROWS][ROW_STRIDE];
  uint8_t weights[STAGES][MATRIX_TILES][CHUNK_STEPS * F::STEP_BYTES];
  uint8_t scales[SCALE_STAGES<F>][MATRIX_TILES][STAGED_SCALES<F>];
  int32_t sums[STAGES][MATRIX_ROWS][STAGED_SUMS<F> == 0 ? 1 : STAGED_SUMS<F>];
  float d[SCALE_STAGES<F>][STAGED_BLOCKS<F>][MATRIX_ROWS];
};

template <unsigned BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(BYTES)
                 : "memory");
  }
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <unsigned NEWEST>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}

// Shares COUNT pieces among the block's threads: calls piece(i) for each.
template <unsigned COUNT, class Piece>
__device__ __forceinline__ void share(Piece piece) {
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < COUNT; i += MATRIX_THREADS) {
    piece(i);
  }
}

// Where a block's operands are in global memory, and how many of them there are.
template <class F>
struct Operands {
  const uint8_t* tiles;
  QuantisedRow x;
  uint32_t inputs, rows, tiles_here;

  __device__ __forceinline__ uint32_t blocks() const { return inputs / F::BLOCK; }

  __device__ __forceinline__ const uint8_t* tile(uint32_t tile) const {
    return tiles + min(tile, tiles_here - 1) * tile_bytes<F>(inputs);
  }

  // Begins to copy what goes with a chunk: as far as there are rows, and elements.
  __device__ __forceinline__ void stage(Staged<F>& to, uint32_t chunk) const {
    constexpr unsigned UNITS = CHUNK / 16;
    uint32_t stage = chunk % STAGES;
    share<MATRIX_ROWS * UNITS>([&](uint32_t i) {
      uint32_t row = i / UNITS, k = chunk * CHUNK + i % UNITS * 16;
      if (row < rows && k < inputs) {
        copy_async<16>(&to.q[stage][row][i % UNITS * 16], x.q + (size_t)row * inputs + k);
      }
    });
    constexpr unsigned TILE_UNITS = CHUNK_STEPS * F::STEP_BYTES / 16;
    share<MATRIX_TILES * TILE_UNITS>([&](uint32_t i) {
      size_t offset = (size_t)chunk * CHUNK_STEPS * F::STEP_BYTES + i % TILE_UNITS * 16;
      if (offset < scales_offset<F>(inputs)) {
        copy_async<16>(&to.weights[stage][i / TILE_UNITS][i % TILE_UNITS * 16],
                       tile(i / TILE_UNITS) + offset);
      }
    });
    stage_sums(to, chunk);
    if constexpr (F::BLOCK == 32) {
      stage_scales(to, stage, chunk);
    } else if (chunk % SUPERBLOCK_CHUNKS == 0) {
      stage_scales(to, chunk / SUPERBLOCK_CHUNKS % 2, chunk / SUPERBLOCK_CHUNKS);
    }
  }

  // The scales that go with a chunk, or with a block of 256.
  __device__ __forceinline__ void stage_scales(Staged<F>& to, uint32_t stage, uint32_t index) const {
    constexpr unsigned UNITS = STAGED_SCALES<F> / 16;
    share<MATRIX_TILES * UNITS>([&](uint32_t i) {
      uint32_t offset = index * STAGED_SCALES<F> + i % UNITS * 16;
      if (offset < blocks() * F::SCALE_BYTES) {
        copy_async<16>(&to.scales[stage][i / UNITS][i % UNITS * 16],
                       tile(i / UNITS) + scales_offset<F>(inputs) + offset);
      }
    });
    share<MATRIX_ROWS * STAGED_BLOCKS<F>>([&](uint32_t i) {
      uint32_t row = i / STAGED_BLOCKS<F>, block = index * STAGED_BLOCKS<F> + i % STAGED_BLOCKS<F>;
      if (row < rows && block < blocks()) {
        copy_async<4>(&to.d[stage][i % STAGED_BLOCKS<F>][row], x.d + (size_t)row * blocks() + block);
      }
    });
  }

  __device__ __forceinline__ void stage_sums(Staged<F>& to, uint32_t chunk) const {
    if constexpr (STAGED_SUMS<F> > 0) {
      // A row's sums of a chunk stand together where it has four; else single ones may be missing.
      constexpr unsigned EACH = STAGED_SUMS<F> == 4 ? 4 : 1;
      constexpr unsigned PIECES = STAGED_SUMS<F> / EACH;
      uint32_t count = inputs / F::SUMS;
      share<MATRIX_ROWS * PIECES>([&](uint32_t i) {
        uint32_t row = i / PIECES, at = i % PIECES * EACH, sum = chunk * STAGED_SUMS<F> + at;
        if (row < rows && sum < count) {
          copy_async<EACH * 4>(&to.sums[chunk % STAGES][row][at], x.sums + (size_t)row * count + sum);
        }
      });
    }
  }
};

// The sums of a warp's tile and the block's rows.
struct Sums {
  float acc[MATRIX_COLUMNS][4], total[MATRIX_COLUMNS][4];
  int dots[MATRIX_COLUMNS][4], lows[MATRIX_COLUMNS][4];
};

// Step `s` of a chunk, for one warp. A row beyond the last is read as the last.
template <class F>
__device__ __forceinline__ void multiply_step(const Staged<F>& from, uint32_t chunk, uint32_t s,
                                              uint32_t rows, const Lane& lane, Sums& sums) {
  uint32_t stage = chunk % STAGES, warp = threadIdx.x / WARP;
  uint32_t superblock = chunk / SUPERBLOCK_CHUNKS % 2;
  uint32_t a[4];
  weights_of_step<F>(from.weights[stage][warp] + s * F::STEP_BYTES, lane, Places<F>(lane.t), a);
  BlockScales w = {};
  StepScales step = {};
  if constexpr (F::BLOCK == 32) {
    w = block_scales<F>(from.scales[stage][warp] + s * F::SCALE_BYTES, lane);
  } else {
    step = step_scales<F>(from.scales[superblock][warp], chunk % SUPERBLOCK_CHUNKS * 2 + s, lane);
  }
#pragma unroll
  for (unsigned n = 0; n < MATRIX_COLUMNS; n++) {
    if (n > 0 && n * COLUMNS >= rows) {
      break;
    }
    uint32_t last = rows - 1;
    const int8_t* q = from.q[stage][min(n * COLUMNS + lane.g, last)] + s * STEP + lane.t * 4;
    uint32_t b0 = *(const uint32_t*)q, b1 = *(const uint32_t*)(q + 16);
    uint32_t x = min(n * COLUMNS + lane.t * 2, last), y = min(n * COLUMNS + lane.t * 2 + 1, last);
    if constexpr (F::BLOCK == 32) {
      float2 d = make_float2(from.d[stage][s][x], from.d[stage][s][y]);
      int2 sum = {};
      if constexpr (F::MINIMUM == Minimum::Added) {
        sum = make_int2(from.sums[stage][x][s], from.sums[stage][y][s]);
      }
      chain_step_32<F>(sums.acc[n], a, b0, b1, w, d, sum);
    } else {
      int2 sum_x = {}, sum_y = {};
      if constexpr (F::MINIMUM == Minimum::Scaled) {
        sum_x = *(const int2*)&from.sums[stage][x][s * 2];
        sum_y = *(const int2*)&from.sums[stage][y][s * 2];
      }
      step_256<F>(sums.dots[n], sums.lows[n], a, b0, b1, step, sum_x, sum_y);
    }
  }
}

// The end of a block of 256.
template <class F>
__device__ __forceinline__ void end_superblock(const Staged<F>& from, uint32_t chunk, uint32_t rows,
                                               const Lane& lane, Sums& sums) {
  uint32_t stage = chunk / SUPERBLOCK_CHUNKS % 2;
  BlockScales w = block_scales<F>(from.scales[stage][threadIdx.x / WARP], lane);
#pragma unroll
  for (unsigned n = 0; n < MATRIX_COLUMNS; n++) {
    if (n > 0 && n * COLUMNS >= rows) {
      break;
    }
    uint32_t x = min(n * COLUMNS + lane.t * 2, rows - 1);
    uint32_t y = min(n * COLUMNS + lane.t * 2 + 1, rows - 1);
    chain_step_256<F>(sums.acc[n], sums.dots[n], sums.lows[n], w,
                      make_float2(from.d[stage][0][x], from.d[stage][0][y]));
  }
}

// Adds the segment's sums to the totals.
__device__ __forceinline__ void end_segment(Sums& sums) {
#pragma unroll
  for (unsigned n = 0; n < MATRIX_COLUMNS; n++) {
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      sums.total[n][i] = __fadd_rn(sums.total[n][i], sums.acc[n][i]);
      sums.acc[n][i] = 0.0f;
    }
  }
}

__device__ __forceinline__ void write_totals(const Sums& sums, float* __restrict__ out,
                                             uint32_t outputs, uint32_t rows, const Lane& lane) {
  uint32_t tile = blockIdx.x * MATRIX_TILES + threadIdx.x / WARP;
#pragma unroll
  for (unsigned n = 0; n < MATRIX_COLUMNS; n++) {
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      uint32_t row = n * COLUMNS + lane.t * 2 + i % 2, output = tile * TILE + lane.g * 2 + i / 2;
      if (row < rows && output < outputs) {
        out[(size_t)row * outputs + output] = sums.total[n][i];
      }
    }
  }
}

template <class F>
__device__ __forceinline__ void linear_matrix(const uint8_t* __restrict__ tiles,
                                              const int8_t* __restrict__ q,
                                              const float* __restrict__ d,
                                              const int32_t* __restrict__ sums,
                                              float* __restrict__ out, uint32_t outputs,
                                              uint32_t inputs, uint32_t rows) {
  __shared__ Staged<F> staged;
  uint32_t first = blockIdx.y * MATRIX_ROWS;
  Operands<F> operands = {
      tiles + (size_t)blockIdx.x * MATRIX_TILES * tile_bytes<F>(inputs),
      quantised_row<F>(q, d, sums, first, inputs),
      inputs,
      min(rows - first, MATRIX_ROWS),
      (outputs + TILE - 1) / TILE - blockIdx.x * MATRIX_TILES,
  };
  Lane lane;
  Sums mine = {};
#pragma unroll
  for (unsigned n = 0; n < MATRIX_COLUMNS; n++) {
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      // The total of one segment is its sum, -0 included: nothing but -0 added to it leaves it so.
      mine.total[n][i] = -0.0f;
    }
  }
  uint32_t steps = inputs / STEP;
  uint32_t chunks = (steps + CHUNK_STEPS - 1) / CHUNK_STEPS;
#pragma unroll 1
  for (uint32_t c = 0; c + 1 < STAGES; c++) {
    if (c < chunks) {
      operands.stage(staged, c);
    }
    commit_copies();
  }
  uint32_t c = 0;
#pragma unroll 1
  do {
    wait_for_copies<STAGES - 2>();
    // This chunk is there for all, and all have left the one whose place the next one takes.
    __syncthreads();
    if (c + STAGES - 1 < chunks) {
      operands.stage(staged, c + STAGES - 1);
    }
    commit_copies();
    uint32_t until = min(CHUNK_STEPS, steps - c * CHUNK_STEPS), s = 0;
#pragma unroll 1
    do {
      multiply_step<F>(staged, c, s, operands.rows, lane, mine);
    } while (++s < until);
    if constexpr (F::BLOCK == 256) {
      if (c % SUPERBLOCK_CHUNKS == SUPERBLOCK_CHUNKS - 1) {
        end_superblock<F>(staged, c, operands.rows, lane, mine);
      }
    }
    if (c % SEGMENT_CHUNKS == SEGMENT_CHUNKS - 1 || c + 1 == chunks) {
      end_segment(mine);
    }
  } while (++c < chunks);
  wait_for_copies<0>();
  write_totals(mine, out + (size_t)first * outputs, outputs, operands.rows, lane);
}
