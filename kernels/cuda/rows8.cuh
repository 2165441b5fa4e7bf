// Quantised linear layers for up to eight rows: one product with the tensor cores for each step,
// its operands read from global memory. A block is a tile of outputs and eight rows; a warp is a
// segment at a time.
#pragma once

#include "tensor.cuh"

// Threads of a block at most: eight segments at a time.
constexpr unsigned ROWS8_THREADS = 256;
// Blocks of 32, or steps of a block of 256, whose loads are under way together.
constexpr unsigned STEPS_AHEAD = 4;

// What a lane reads of the activations: the row g for products, 2 t and 2 t + 1 for scales.
struct LaneRows {
  QuantisedRow products, x, y;
};

// A step's operands.
struct StepOperands {
  uint32_t a[4], b0, b1;

  template <class F>
  __device__ __forceinline__ void load(const uint8_t* quants, const LaneRows& rows, size_t step,
                                       const Lane& lane, const Places<F>& at) {
    weights_of_step<F>(quants + step * F::STEP_BYTES, lane, at, a);
    const int8_t* q = rows.products.q + step * STEP + lane.t * 4;
    b0 = *(const uint32_t*)q;
    b1 = *(const uint32_t*)(q + 16);
  }
};

template <class F>
__device__ __forceinline__ void rows8_block_32(const uint8_t* quants, const uint8_t* scales,
                                               const LaneRows& rows, uint32_t block,
                                               const Lane& lane, float (&acc)[4]) {
  StepOperands step;
  step.load<F>(quants, rows, block, lane, Places<F>(lane.t));
  BlockScales w = block_scales<F>(scales + (size_t)block * F::SCALE_BYTES, lane);
  float2 d = make_float2(rows.x.d[block], rows.y.d[block]);
  int2 sums = {};
  if constexpr (F::MINIMUM == Minimum::Added) {
    sums = make_int2(rows.x.sums[block], rows.y.sums[block]);
  }
  chain_step_32<F>(acc, step.a, step.b0, step.b1, w, d, sums);
}

template <class F>
__device__ __forceinline__ void rows8_block_256(const uint8_t* quants, const uint8_t* scales,
                                                const LaneRows& rows, uint32_t block,
                                                const Lane& lane, float (&acc)[4]) {
  constexpr unsigned STEPS = 256 / STEP;
  const uint8_t* scale = scales + (size_t)block * F::SCALE_BYTES;
  Places<F> at(lane.t);
  int dots[4] = {}, lows[4] = {};
#pragma unroll 1
  for (unsigned s = 0; s < STEPS; s += STEPS_AHEAD) {
#pragma unroll
    for (unsigned j = 0; j < STEPS_AHEAD; j++) {
      size_t step = (size_t)block * STEPS + s + j;
      StepOperands operands;
      operands.load<F>(quants, rows, step, lane, at);
      StepScales<F> w(scale, s + j, lane);
      add_products<F>(dots, operands.a, operands.b0, operands.b1, w.first, w.second);
      if constexpr (F::MINIMUM == Minimum::Scaled) {
        StepMinimums<F>(scale, s + j, lane)
            .add(lows, *(const int2*)(rows.x.sums + step * 2),
                 *(const int2*)(rows.y.sums + step * 2));
      }
    }
  }
  float2 d = make_float2(rows.x.d[block], rows.y.d[block]);
  chain_step_256<F>(acc, dots, lows, block_scales<F>(scale, lane), d);
}

template <class F>
__device__ __forceinline__ void linear_rows8(const uint8_t* __restrict__ tiles,
                                             const int8_t* __restrict__ q,
                                             const float* __restrict__ d,
                                             const int32_t* __restrict__ sums,
                                             float* __restrict__ out, uint32_t outputs,
                                             uint32_t inputs, uint32_t rows) {
  extern __shared__ float partial[];
  constexpr uint32_t BLOCKS = SEGMENT / F::BLOCK;
  const uint8_t* quants = tiles + blockIdx.x * tile_bytes<F>(inputs);
  const uint8_t* scales = quants + scales_offset<F>(inputs);
  Lane lane;
  auto row = [&](uint32_t r) {
    return quantised_row<F>(q, d, sums, row_at<COLUMNS>(r, rows), inputs);
  };
  LaneRows mine = {row(lane.g), row(lane.t * 2), row(lane.t * 2 + 1)};
  uint32_t blocks = inputs / F::BLOCK;
  uint32_t segments = (blocks + BLOCKS - 1) / BLOCKS;
  // There are at most as many warps as segments.
  uint32_t s = threadIdx.x / WARP;
#pragma unroll 1
  do {
    float acc[4] = {};
    uint32_t begin = s * BLOCKS;
    uint32_t end = min(blocks, begin + BLOCKS);
    if constexpr (F::BLOCK == 256) {
      unrolled<1>(begin, end, [&](uint32_t block) {
        rows8_block_256<F>(quants, scales, mine, block, lane, acc);
      });
    } else {
      unrolled<STEPS_AHEAD>(begin, end, [&](uint32_t block) {
        rows8_block_32<F>(quants, scales, mine, block, lane, acc);
      });
    }
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      partial[(s * COLUMNS + lane.t * 2 + i % 2) * TILE + lane.g * 2 + i / 2] = acc[i];
    }
    s += blockDim.x / WARP;
  } while (s < segments);
  add_segments<COLUMNS>(partial, out, outputs, segments, rows);
}
