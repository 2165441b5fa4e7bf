// Linear layers of the `fast` profile: products of 16-bit matrices by tensor cores, summed in f32.
//
// An output's value is one chain of products for each segment of 512 elements, ascending in steps
// of sixteen, whatever the tile: the weights are always the first matrix, the activations the
// second. Segments are added in ascending order in f32, and the total is multiplied with the row's
// scale. So a row's result depends neither on how many rows there are nor on where it stands.
#pragma once

#include "fast_weights.cuh"

// Steps of a segment.
constexpr unsigned SEGMENT_STEPS = SEGMENT / STEP;
// Rows of the second matrix of a product; results that a lane has of one product.
constexpr unsigned PRODUCT_ROWS = 8;
constexpr unsigned RESULTS = 4;

// How a block of threads is divided: PARTS groups of warps, which share the segments; in a group,
// OUTPUT_WARPS x ROW_WARPS warps, each with TILES tiles of outputs and COLUMNS x 8 rows.
template <unsigned Parts, unsigned OutputWarps, unsigned RowWarps, unsigned Tiles, unsigned Columns,
          unsigned Stages>
struct Division {
  static constexpr unsigned PARTS = Parts;
  static constexpr unsigned OUTPUT_WARPS = OutputWarps;
  static constexpr unsigned TILES = Tiles;
  static constexpr unsigned COLUMNS = Columns;
  static constexpr unsigned STAGES = Stages;
  static constexpr unsigned GROUP_THREADS = OutputWarps * RowWarps * WARP;
  static constexpr unsigned THREADS = Parts * GROUP_THREADS;
  static constexpr unsigned GROUP_TILES = OutputWarps * Tiles;
  static constexpr unsigned GROUP_ROWS = RowWarps * Columns * PRODUCT_ROWS;
};

// Few rows: a block is a tile of outputs and eight rows, a warp an eighth of the segments.
template <unsigned Stages>
using Narrow = Division<8, 1, 1, 1, 1, Stages>;
// Many rows: a block is 128 outputs and 128 rows, a warp 32 and 64 of them.
using Wide = Division<1, 4, 2, 2, 8, 3>;

__device__ __forceinline__ void multiply_add(__half*, float (&c)[RESULTS],
                                             const uint32_t (&a)[FRAGMENT], uint32_t b0,
                                             uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_add(BFloat16*, float (&c)[RESULTS],
                                             const uint32_t (&a)[FRAGMENT], uint32_t b0,
                                             uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A chunk of eight elements of a row of a step of activations: of eight adjacent rows, no two
// chunks share a bank.
__device__ __forceinline__ uint32_t row_place(uint32_t row, uint32_t chunk) {
  return row * STEP * 2 + (chunk ^ row / 2 % 4) * CHUNK;
}

template <class W, class T, class D>
struct Linear {
  static constexpr unsigned ROW_BYTES = D::GROUP_ROWS * STEP * 2;
  static constexpr unsigned STAGE_BYTES = ROW_BYTES + D::GROUP_TILES * W::BYTES;

  const uint8_t* tiles;
  const uint16_t* x;
  uint32_t inputs, rows, steps, last_tile;
  uint32_t first_tile, first_row, part, thread;
  uint8_t* stages;

  // The step of the layer that is this part's i-th.
  __device__ __forceinline__ uint32_t step_of(uint32_t i) const {
    return (i / SEGMENT_STEPS * D::PARTS + part) * SEGMENT_STEPS + i % SEGMENT_STEPS;
  }

  // Begins loading a step, if there is one. Rows and tiles beyond the last repeat it, and their
  // results are not written.
  __device__ __forceinline__ void load(uint32_t i, uint32_t stage) const {
    uint32_t step = step_of(i);
    if (step < steps) {
      uint8_t* to = stages + stage * STAGE_BYTES;
      size_t stride = (size_t)steps * STEP;
      static_assert(D::GROUP_ROWS * 4 % D::GROUP_THREADS == 0, "each thread has as many chunks");
#pragma unroll
      for (unsigned n = 0; n < D::GROUP_ROWS * 4 / D::GROUP_THREADS; n++) {
        uint32_t c = thread + n * D::GROUP_THREADS;
        uint32_t row = min(first_row + c / 4, rows - 1);
        copy_async_near(to + row_place(c / 4, c % 4), x + row * stride + step * STEP + c % 4 * 8);
      }
      constexpr unsigned CHUNKS = W::BYTES / CHUNK;
#pragma unroll
      for (unsigned n = 0; n * D::GROUP_THREADS < D::GROUP_TILES * CHUNKS; n++) {
        constexpr unsigned ALL = D::GROUP_TILES * CHUNKS;
        uint32_t c = thread + n * D::GROUP_THREADS;
        if ((n + 1) * D::GROUP_THREADS <= ALL || c < ALL) {
          // A single tile is never beyond the last.
          uint32_t tile = D::GROUP_TILES == 1 ? 0 : c / CHUNKS;
          uint32_t from = D::GROUP_TILES == 1 ? first_tile : min(first_tile + tile, last_tile);
          uint32_t chunk = D::GROUP_TILES == 1 ? c : c % CHUNKS;
          W::load(to + ROW_BYTES + tile * W::BYTES, tiles + from * W::tile_bytes(inputs), inputs,
                  step, chunk * CHUNK);
        }
      }
    }
    commit_copies();
  }

  // Adds a step's products; `tile` and `row` are the warp's first, within the block.
  __device__ __forceinline__ void add_step(uint32_t stage, uint32_t tile, uint32_t row,
                                           float (&acc)[D::TILES][D::COLUMNS][RESULTS]) const {
    uint32_t lane = threadIdx.x % WARP;
    const uint8_t* at = stages + stage * STAGE_BYTES;
    uint32_t a[D::TILES][PRODUCTS][FRAGMENT];
#pragma unroll
    for (unsigned i = 0; i < D::TILES; i++) {
      W::fragments(at + ROW_BYTES + (tile + i) * W::BYTES, lane, a[i]);
    }
    uint32_t address = shared_address(at) + row_place(row + lane % 8, lane / 8);
#pragma unroll
    for (unsigned j = 0; j < D::COLUMNS; j++) {
      uint32_t b[FRAGMENT];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                   : "r"(address + j * PRODUCT_ROWS * STEP * 2)
                   : "memory");
#pragma unroll
      for (unsigned p = 0; p < PRODUCTS; p++) {
#pragma unroll
        for (unsigned i = 0; i < D::TILES; i++) {
          multiply_add((T*)nullptr, acc[i][j], a[i][p], b[2 * p], b[2 * p + 1]);
        }
      }
    }
  }

  // Waits for the part's i-th step, and begins loading the one that takes the place of the last.
  __device__ __forceinline__ void advance(uint32_t i, uint32_t stage) const {
    wait_for_copies<D::STAGES - 2>();
    if constexpr (D::PARTS == 1) {
      __syncthreads();
    } else {
      __syncwarp();
    }
    load(i + D::STAGES - 1, stage == 0 ? D::STAGES - 1 : stage - 1);
  }
};

// What both divisions begin with.
template <class W, class T, class D>
__device__ __forceinline__ Linear<W, T, D> begin(const uint8_t* tiles, const uint16_t* x,
                                                 uint32_t outputs, uint32_t inputs, uint32_t rows,
                                                 uint8_t* memory) {
  Linear<W, T, D> linear;
  linear.tiles = tiles;
  linear.x = x;
  linear.inputs = inputs;
  linear.rows = rows;
  linear.steps = (inputs + STEP - 1) / STEP;
  linear.last_tile = (outputs - 1) / TILE;
  linear.first_tile = blockIdx.x * D::GROUP_TILES;
  linear.first_row = blockIdx.y * D::GROUP_ROWS;
  linear.part = D::PARTS == 1 ? 0 : threadIdx.x / D::GROUP_THREADS;
  linear.thread = D::PARTS == 1 ? threadIdx.x : threadIdx.x % D::GROUP_THREADS;
  linear.stages = memory + linear.part * D::STAGES * Linear<W, T, D>::STAGE_BYTES;
#pragma unroll 1
  for (unsigned i = 0; i < D::STAGES - 1; i++) {
    linear.load(i, i);
  }
  return linear;
}

template <class W, class T, unsigned Stages>
__device__ __forceinline__ void narrow(const uint8_t* tiles, const uint16_t* x, const float* scales,
                                       float* out, uint32_t outputs, uint32_t inputs,
                                       uint32_t rows) {
  using D = Narrow<Stages>;
  constexpr unsigned SUMS = PRODUCT_ROWS * TILE;
  __shared__ __align__(16) uint8_t memory[D::PARTS * D::STAGES * Linear<W, T, D>::STAGE_BYTES];
  __shared__ float partial[D::PARTS][SUMS];
  Linear<W, T, D> linear = begin<W, T, D>(tiles, x, outputs, inputs, rows, memory);
  uint32_t segments = (linear.steps + SEGMENT_STEPS - 1) / SEGMENT_STEPS;
  uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
  float total = 0.0f;
  uint32_t i = 0, stage = 0;
#pragma unroll 1
  for (uint32_t segment = 0; segment < segments; segment += D::PARTS) {
    float acc[1][1][RESULTS] = {};
#pragma unroll 1
    for (uint32_t n = 0; n < SEGMENT_STEPS && linear.step_of(i) < linear.steps; n++, i++) {
      linear.advance(i, stage);
      linear.add_step(stage, 0, 0, acc);
      stage = stage == D::STAGES - 1 ? 0 : stage + 1;
    }
#pragma unroll
    for (unsigned r = 0; r < RESULTS; r++) {
      partial[linear.part][(2 * t + r % 2) * TILE + W::output(g, r < 2)] = acc[0][0][r];
    }
    __syncthreads();
    if (threadIdx.x < SUMS) {
      // A part beyond the last segment has put down +0, which changes no total: none is -0.
#pragma unroll
      for (unsigned p = 0; p < D::PARTS; p++) {
        total = __fadd_rn(total, partial[p][threadIdx.x]);
      }
    }
    __syncthreads();
  }
  uint32_t row = blockIdx.y * PRODUCT_ROWS + threadIdx.x / TILE;
  uint32_t output = blockIdx.x * TILE + threadIdx.x % TILE;
  if (threadIdx.x < SUMS && row < rows && output < outputs) {
    out[(size_t)row * outputs + output] = __fmul_rn(total, scales[row]);
  }
}

template <class W, class T>
__device__ __forceinline__ void wide(const uint8_t* tiles, const uint16_t* x, const float* scales,
                                     float* out, uint32_t outputs, uint32_t inputs,
                                     uint32_t rows) {
  using D = Wide;
  __shared__ __align__(16) uint8_t memory[D::STAGES * Linear<W, T, D>::STAGE_BYTES];
  Linear<W, T, D> linear = begin<W, T, D>(tiles, x, outputs, inputs, rows, memory);
  uint32_t warp = threadIdx.x / WARP;
  uint32_t tile = warp % D::OUTPUT_WARPS * D::TILES;
  uint32_t row = warp / D::OUTPUT_WARPS * D::COLUMNS * PRODUCT_ROWS;
  bool live = linear.first_tile + tile <= linear.last_tile && linear.first_row + row < rows;
  float total[D::TILES][D::COLUMNS][RESULTS] = {};
  uint32_t i = 0, stage = 0;
#pragma unroll 1
  do {
    float acc[D::TILES][D::COLUMNS][RESULTS] = {};
    uint32_t end = min(linear.steps, i + SEGMENT_STEPS);
#pragma unroll 1
    do {
      linear.advance(i, stage);
      if (live) {
        linear.add_step(stage, tile, row, acc);
      }
      stage = stage == D::STAGES - 1 ? 0 : stage + 1;
    } while (++i < end);
#pragma unroll
    for (unsigned n = 0; n < D::TILES * D::COLUMNS * RESULTS; n++) {
      float& sum = total[n / (D::COLUMNS * RESULTS)][n / RESULTS % D::COLUMNS][n % RESULTS];
      sum = __fadd_rn(sum, acc[n / (D::COLUMNS * RESULTS)][n / RESULTS % D::COLUMNS][n % RESULTS]);
    }
  } while (i < linear.steps);
  uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
  for (unsigned j = 0; j < D::COLUMNS; j++) {
#pragma unroll
    for (unsigned c = 0; c < 2; c++) {
      uint32_t at = linear.first_row + row + j * PRODUCT_ROWS + 2 * t + c;
      float scale = scales[min(at, rows - 1)];
#pragma unroll
      for (unsigned n = 0; n < D::TILES; n++) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          uint32_t output = (linear.first_tile + tile + n) * TILE + W::output(g, half == 0);
          if (at < rows && output < outputs) {
            out[(size_t)at * outputs + output] = __fmul_rn(total[n][j][2 * half + c], scale);
          }
        }
      }
    }
  }
}
