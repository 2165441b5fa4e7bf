// Quantised linear layers for many rows (prefill, large batches): a block is four tiles of outputs
// and 64 rows. Weights, activations and scales go through shared memory by asynchronous copies,
// chunks of 64 elements of the inner dimension, three chunks ahead of the one that is computed;
// a warp multiplies one tile with all rows.
#pragma once

#include "copies.cuh"
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

// What scales are staged by, a chunk or a block of 256, and how many of those there are at once.
template <class F>
constexpr unsigned PART = F::BLOCK == 256 ? 256 : CHUNK;
template <class F>
constexpr unsigned PARTS = F::BLOCK == 256 ? 2 : STAGES;
// Of such a part: bytes of a tile's scales, blocks, and sums of integers of a row.
template <class F>
constexpr unsigned PART_SCALES = PART<F> / F::BLOCK * F::SCALE_BYTES;
template <class F>
constexpr unsigned PART_BLOCKS = PART<F> / F::BLOCK;
template <class F>
constexpr unsigned PART_SUMS = F::MINIMUM == Minimum::None ? 0 : PART<F> / F::SUMS;

template <class F>
struct __align__(16) Staged {
  int8_t q[STAGES][MATRIX_ROWS][ROW_STRIDE];
  uint8_t weights[STAGES][MATRIX_TILES][CHUNK_STEPS * F::STEP_BYTES];
  uint8_t scales[PARTS<F>][MATRIX_TILES][PART_SCALES<F>];
  int32_t sums[PARTS<F>][PART_SUMS<F> == 16 ? MATRIX_ROWS : 1][16];
  // Of blocks of 32, scales and sums of the rows stand together.
  float d[PARTS<F>][PART_BLOCKS<F>][MATRIX_ROWS];
  int32_t block_sums[PARTS<F>][PART_BLOCKS<F>][PART_SUMS<F> == 2 ? MATRIX_ROWS : 1];
};

// Shares COUNT pieces among the block's threads: calls piece(i) for each.
template <unsigned COUNT, class Piece>
__device__ __forceinline__ void share(Piece piece) {
#pragma unroll
  for (unsigned done = 0; done < COUNT; done += MATRIX_THREADS) {
    uint32_t i = done + threadIdx.x;
    if (done + MATRIX_THREADS <= COUNT || i < COUNT) {
      piece(i);
    }
  }
}

// What a thread copies of each chunk: where its pieces are from the beginning of the block's
// operands, in bytes, and whether they are there at all.
template <class F>
struct Staging {
  // Whether rows are made of whole chunks: only the last chunk of blocks of 32 may have one step.
  static constexpr bool WHOLE = F::BLOCK == 256;
  static constexpr unsigned UNITS = CHUNK / 16;
  static constexpr unsigned TILE_UNITS = CHUNK_STEPS * F::STEP_BYTES / 16;
  static constexpr unsigned SCALE_UNITS = PART_SCALES<F> / 16;
  static constexpr unsigned Q_TURNS = MATRIX_ROWS * UNITS / MATRIX_THREADS;
  static constexpr unsigned TILE_PIECES = MATRIX_TILES * TILE_UNITS;
  static constexpr unsigned TILE_TURNS = (TILE_PIECES + MATRIX_THREADS - 1) / MATRIX_THREADS;

  const uint8_t* tiles;
  QuantisedRow x;
  uint32_t inputs, rows, tiles_here, columns_rows;
  uint32_t q_from[Q_TURNS], tile_from[TILE_TURNS];

  // `rows` and `tiles_here` are those of the block, whose operands begin at `tiles` and `x`.
  __device__ __forceinline__ Staging(const uint8_t* tiles, QuantisedRow x, uint32_t inputs,
                                     uint32_t rows, uint32_t tiles_here)
      : tiles(tiles), x(x), inputs(inputs), rows(rows), tiles_here(tiles_here) {
    // Columns are multiplied in pairs; a row of theirs beyond the last repeats it.
    columns_rows = (rows + 2 * COLUMNS - 1) / (2 * COLUMNS) * (2 * COLUMNS);
#pragma unroll
    for (unsigned turn = 0; turn < Q_TURNS; turn++) {
      uint32_t i = turn * MATRIX_THREADS + threadIdx.x;
      q_from[turn] = row(i / UNITS) * inputs + i % UNITS * 16;
    }
#pragma unroll
    for (unsigned turn = 0; turn < TILE_TURNS; turn++) {
      uint32_t i = turn * MATRIX_THREADS + threadIdx.x;
      tile_from[turn] = tile(i / TILE_UNITS) + i % TILE_UNITS * 16;
    }
  }

  __device__ __forceinline__ uint32_t row(uint32_t row) const { return min(row, rows - 1); }

  __device__ __forceinline__ uint32_t tile(uint32_t tile) const {
    return min(tile, tiles_here - 1) * (uint32_t)tile_bytes<F>(inputs);
  }

  // Begins to copy what goes with a chunk, as far as there are columns, and elements.
  __device__ __forceinline__ void stage(Staged<F>& to, uint32_t chunk) const {
    uint32_t stage = chunk % STAGES;
#pragma unroll
    for (unsigned turn = 0; turn < Q_TURNS; turn++) {
      uint32_t i = turn * MATRIX_THREADS + threadIdx.x;
      if (i / UNITS < columns_rows && (WHOLE || chunk * CHUNK + i % UNITS * 16 < inputs)) {
        copy_async<16>(&to.q[stage][i / UNITS][i % UNITS * 16], x.q + (q_from[turn] + chunk * CHUNK));
      }
    }
    uint32_t quants = chunk * CHUNK_STEPS * F::STEP_BYTES;
#pragma unroll
    for (unsigned turn = 0; turn < TILE_TURNS; turn++) {
      uint32_t i = turn * MATRIX_THREADS + threadIdx.x;
      bool is_piece = (turn + 1) * MATRIX_THREADS <= TILE_PIECES || i < TILE_PIECES;
      if (is_piece &&
          (WHOLE || quants + i % TILE_UNITS * 16 < (uint32_t)scales_offset<F>(inputs))) {
        copy_async<16>(&to.weights[stage][i / TILE_UNITS][i % TILE_UNITS * 16],
                       tiles + (tile_from[turn] + quants));
      }
    }
    if constexpr (F::BLOCK == 32) {
      stage_part(to, chunk);
    } else if (chunk % SUPERBLOCK_CHUNKS == 0) {
      stage_part(to, chunk / SUPERBLOCK_CHUNKS);
    }
  }

  // The scales and sums that go with a chunk, or with a block of 256.
  __device__ __forceinline__ void stage_part(Staged<F>& to, uint32_t part) const {
    uint32_t blocks = inputs / F::BLOCK;
    share<MATRIX_TILES * SCALE_UNITS>([&](uint32_t i) {
      uint32_t offset = part * PART_SCALES<F> + i % SCALE_UNITS * 16;
      if (WHOLE || offset < blocks * F::SCALE_BYTES) {
        copy_async<16>(&to.scales[part % PARTS<F>][i / SCALE_UNITS][i % SCALE_UNITS * 16],
                       tiles + (tile(i / SCALE_UNITS) + (uint32_t)scales_offset<F>(inputs) + offset));
      }
    });
    share<MATRIX_ROWS * PART_BLOCKS<F>>([&](uint32_t i) {
      uint32_t r = i / PART_BLOCKS<F>, b = i % PART_BLOCKS<F>, block = part * PART_BLOCKS<F> + b;
      if (r < columns_rows && (WHOLE || block < blocks)) {
        uint32_t from = row(r) * blocks + block;
        copy_async<4>(&to.d[part % PARTS<F>][b][r], x.d + from);
        if constexpr (PART_SUMS<F> == 2) {
          copy_async<4>(&to.block_sums[part % PARTS<F>][b][r], x.sums + from);
        }
      }
    });
    if constexpr (PART_SUMS<F> == 16) {
      share<MATRIX_ROWS * 4>([&](uint32_t i) {
        if (i / 4 < columns_rows) {
          copy_async<16>(&to.sums[part % PARTS<F>][i / 4][i % 4 * 4],
                         x.sums + ((row(i / 4) * blocks + part) * 16 + i % 4 * 4));
        }
      });
    }
  }
};

// The sums of a warp's tile and the block's rows.
struct Sums {
  float acc[MATRIX_COLUMNS][4], total[MATRIX_COLUMNS][4];
  int dots[MATRIX_COLUMNS][4];
};

// Calls column(n) for each column that has rows, two at a time.
template <class Column>
__device__ __forceinline__ void each_column(uint32_t rows, Column column) {
#pragma unroll
  for (unsigned n = 0; n < MATRIX_COLUMNS; n += 2) {
    if (n > 0 && n * COLUMNS >= rows) {
      break;
    }
    column(n);
    column(n + 1);
  }
}

// Step `s` of a chunk, for one warp.
template <class F>
__device__ __forceinline__ void multiply_step(const Staged<F>& from, uint32_t chunk, uint32_t s,
                                              uint32_t rows, const Lane& lane, Sums& sums) {
  uint32_t stage = chunk % STAGES, warp = threadIdx.x / WARP;
  uint32_t a[4];
  weights_of_step<F>(from.weights[stage][warp] + s * F::STEP_BYTES, lane, Places<F>(lane.t), a);
  const int8_t* q = from.q[stage][lane.g] + s * STEP + lane.t * 4;
  auto b = [q](unsigned n, unsigned k) {
    return *(const uint32_t*)(q + n * COLUMNS * ROW_STRIDE + k);
  };
  if constexpr (F::BLOCK == 32) {
    BlockScales w = block_scales<F>(from.scales[stage][warp] + s * F::SCALE_BYTES, lane);
    each_column(rows, [&](unsigned n) {
      float2 d = *(const float2*)&from.d[stage][s][n * COLUMNS + lane.t * 2];
      int2 sum = {};
      if constexpr (F::MINIMUM == Minimum::Added) {
        sum = *(const int2*)&from.block_sums[stage][s][n * COLUMNS + lane.t * 2];
      }
      chain_step_32<F>(sums.acc[n], a, b(n, 0), b(n, 16), w, d, sum);
    });
  } else {
    const uint8_t* scales = from.scales[chunk / SUPERBLOCK_CHUNKS % 2][warp];
    StepScales<F> w(scales, chunk % SUPERBLOCK_CHUNKS * CHUNK_STEPS + s, lane);
    each_column(rows, [&](unsigned n) {
      add_products<F>(sums.dots[n], a, b(n, 0), b(n, 16), w.first, w.second);
    });
  }
}

// The end of a block of 256.
template <class F>
__device__ __forceinline__ void end_superblock(const Staged<F>& from, uint32_t chunk, uint32_t rows,
                                               const Lane& lane, Sums& sums) {
  uint32_t part = chunk / SUPERBLOCK_CHUNKS % 2;
  const uint8_t* scales = from.scales[part][threadIdx.x / WARP];
  BlockScales w = block_scales<F>(scales, lane);
  each_column(rows, [&](unsigned n) {
    uint32_t row = n * COLUMNS + lane.t * 2;
    int lows[4] = {};
    if constexpr (F::MINIMUM == Minimum::Scaled) {
#pragma unroll 1
      for (unsigned s = 0; s < 256 / STEP; s++) {
        StepMinimums<F>(scales, s, lane)
            .add(lows, *(const int2*)&from.sums[part][row][s * 2],
                 *(const int2*)&from.sums[part][row + 1][s * 2]);
      }
    }
    chain_step_256<F>(sums.acc[n], sums.dots[n], lows, w, *(const float2*)&from.d[part][0][row]);
  });
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

// Floats from a row of totals in shared memory to the next: two of a warp's rows lie in different
// banks.
constexpr unsigned TOTALS_STRIDE = MATRIX_TILES * TILE + 8;

// Writes the totals, by way of shared memory that nobody reads any more, so that adjacent threads
// write adjacent outputs.
__device__ __forceinline__ void write_totals(const Sums& sums, float* shared,
                                             float* __restrict__ out, uint32_t outputs,
                                             uint32_t rows, const Lane& lane) {
  constexpr unsigned OUTPUTS = MATRIX_TILES * TILE;
#pragma unroll
  for (unsigned n = 0; n < MATRIX_COLUMNS; n++) {
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
      float* row = shared + (n * COLUMNS + lane.t * 2 + i) * TOTALS_STRIDE;
      float2* pair = (float2*)(row + threadIdx.x / WARP * TILE) + lane.g;
      *pair = make_float2(sums.total[n][i], sums.total[n][i + 2]);
    }
  }
  __syncthreads();
  uint32_t n = threadIdx.x % OUTPUTS, output = blockIdx.x * OUTPUTS + n;
  if (output < outputs) {
#pragma unroll 1
    for (uint32_t row = threadIdx.x / OUTPUTS; row < rows; row += MATRIX_THREADS / OUTPUTS) {
      out[(size_t)row * outputs + output] = shared[row * TOTALS_STRIDE + n];
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
  Staging<F> operands(tiles + (size_t)blockIdx.x * MATRIX_TILES * tile_bytes<F>(inputs),
                      quantised_row<F>(q, d, sums, first, inputs), inputs,
                      min(rows - first, MATRIX_ROWS),
                      (outputs + TILE - 1) / TILE - blockIdx.x * MATRIX_TILES);
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
  uint32_t chunks = Staging<F>::WHOLE ? inputs / CHUNK : (steps + CHUNK_STEPS - 1) / CHUNK_STEPS;
  constexpr uint32_t AHEAD = STAGES - 1;
  uint32_t staging = 0;
#pragma unroll 1
  do {
    // The chunk to compute is there for all, and all have left the one whose place the next takes.
    wait_for_copies<AHEAD - 1>();
    __syncthreads();
    if (staging < chunks) {
      operands.stage(staged, staging);
    }
    commit_copies();
    if (staging >= AHEAD) {
      uint32_t c = staging - AHEAD;
      uint32_t until = CHUNK_STEPS, s = 0;
      if constexpr (!Staging<F>::WHOLE) {
        until = min(until, steps - c * CHUNK_STEPS);
      }
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
    }
  } while (++staging < chunks + AHEAD);
  __syncthreads();
  static_assert(sizeof(staged) >= MATRIX_ROWS * TOTALS_STRIDE * sizeof(float), "room for the totals");
  write_totals(mine, (float*)&staged, out + (size_t)first * outputs, outputs, operands.rows, lane);
}
