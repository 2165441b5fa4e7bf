// The weights of the `fast` profile: which bytes of a packed tile a step of 32 elements takes, and
// how a lane makes its part of two 16x16 matrices (outputs x elements) from them.
//
// Of the sixteen elements of the i-th product of a step, lane t of a group of four has elements
// 16 i + 4 t and the next three, as k = 2 t, 2 t + 1, 2 t + 8, 2 t + 9. That is how codes lie in a
// packed word; activations are stored in the order of k (fast.cu).
#pragma once

#include "copies.cuh"
#include "packed.cuh"

// Bytes of an asynchronous copy.
constexpr unsigned CHUNK = 16;
// Registers of a lane's part of a 16x16 matrix of 16-bit elements, and products of a step.
constexpr unsigned FRAGMENT = 4;
constexpr unsigned PRODUCTS = 2;

struct BFloat16 { uint16_t bits; };

__device__ __forceinline__ uint32_t bits_of(__half2 pair) { return *(const uint32_t*)&pair; }
__device__ __forceinline__ __half2 pair_of(uint32_t bits) { return *(const __half2*)&bits; }

// Two bytes of `word` less `excess`, exactly: 0x6400 + n is the half 1024 + n.
template <unsigned Selector>
__device__ __forceinline__ __half2 integers(uint32_t word, uint32_t excess) {
  __half2 above = pair_of(__byte_perm(word, 0x64646464u, Selector));
  return __hsub2_rn(above, pair_of(0x64006400u + excess * 0x00010001u));
}

constexpr unsigned LOWER_BYTES = 0x4140;
constexpr unsigned UPPER_BYTES = 0x4342;

// Quantised weights become f16. A lane has outputs 2 g and 2 g + 1 of a tile.
template <class F>
struct Quantised {
  static constexpr unsigned STEPS = F::BLOCK / STEP;
  // A step's codes; the block's scales (and minimums); sub-scales; sub-minimums.
  static constexpr unsigned HEAD = F::BLOCK == 32 ? F::SCALE_BYTES
                                                  : F::MINIMUM == Minimum::Scaled ? 64 : 32;
  static constexpr unsigned SUB_BYTES = F::BLOCK == 32 ? 0 : STEP / F::SUB * TILE;
  static constexpr unsigned MINIMUM_BYTES = F::MINIMUM == Minimum::Scaled ? TILE : 0;
  static constexpr unsigned BYTES = F::STEP_BYTES + HEAD + SUB_BYTES + MINIMUM_BYTES;

  __device__ static __forceinline__ size_t tile_bytes(uint32_t inputs) {
    return ::tile_bytes<F>(inputs);
  }

  // Begins copying the chunk at `at` of a step.
  __device__ static __forceinline__ void load(uint8_t* to, const uint8_t* tile, uint32_t inputs,
                                              uint32_t step, uint32_t at) {
    const uint8_t* scales = tile + scales_offset<F>(inputs) + (size_t)(step / STEPS) * F::SCALE_BYTES;
    const uint8_t* from = tile + (size_t)step * F::STEP_BYTES + at;
    if (at >= F::STEP_BYTES) {
      from = scales + (at - F::STEP_BYTES);
    }
    if (SUB_BYTES > 0 && at >= F::STEP_BYTES + HEAD) {
      from += step % STEPS * SUB_BYTES;
    }
    if (MINIMUM_BYTES > 0 && at >= F::STEP_BYTES + HEAD + SUB_BYTES) {
      from = scales + HEAD + STEPS * SUB_BYTES + step % STEPS * TILE;
    }
    copy_async<CHUNK>(to + at, from);
  }

  // The codes of four elements of both products, for outputs 2 g and 2 g + 1.
  __device__ static __forceinline__ void codes(const uint8_t* at, uint32_t t,
                                               uint2 (&out)[PRODUCTS]) {
    constexpr unsigned VECTOR = TILE * 4;
    out[0] = *(const uint2*)(at + t * VECTOR);
    if constexpr (F::LOW == 8) {
      out[1] = *(const uint2*)(at + (4 + t) * VECTOR);
      return;
    }
    out[1] = make_uint2(out[0].x >> 4 & 0x0f0f0f0fu, out[0].y >> 4 & 0x0f0f0f0fu);
    out[0] = make_uint2(out[0].x & 0x0f0f0f0fu, out[0].y & 0x0f0f0f0fu);
    if constexpr (F::HIGH > 0) {
      constexpr unsigned VECTORS = F::HIGH == 2 ? 2 : 1;
      constexpr uint32_t MASK = F::HIGH == 2 ? 0x03030303u : 0x01010101u;
      uint2 high = *(const uint2*)(at + (4 + t % VECTORS) * VECTOR);
#pragma unroll
      for (unsigned p = 0; p < PRODUCTS; p++) {
        uint32_t shift = t / VECTORS * VECTORS + 4 * p;
        out[p].x |= (high.x >> shift & MASK) << 4;
        out[p].y |= (high.y >> shift & MASK) << 4;
      }
    }
  }

  // The scales of the two outputs in one product, and their minimums.
  __device__ static __forceinline__ void scales(const uint8_t* at, uint32_t g, unsigned product,
                                                __half2& scale, __half2& minimum) {
    scale = *(const __half2*)(at + g * 4);
    if constexpr (F::MINIMUM != Minimum::None) {
      minimum = *(const __half2*)(at + 32 + g * 4);
    }
    if constexpr (F::BLOCK == 256) {
      const uint8_t* sub = at + HEAD + (F::SUB == 16 ? product * TILE : 0) + g * 2;
      uint32_t word = *(const uint16_t*)sub;
      constexpr bool SIGNED = F::MINIMUM == Minimum::None;
      __half2 integer = integers<LOWER_BYTES>(SIGNED ? word ^ 0x8080u : word, SIGNED ? 128 : 0);
      scale = __hmul2_rn(scale, integer);
    }
    if constexpr (F::MINIMUM == Minimum::Scaled) {
      uint32_t word = *(const uint16_t*)(at + HEAD + SUB_BYTES + g * 2);
      minimum = __hneg2(__hmul2_rn(minimum, integers<LOWER_BYTES>(word, 0)));
    }
  }

  __device__ static __forceinline__ uint32_t weight(__half2 integer, __half2 scale,
                                                    __half2 minimum) {
    if constexpr (F::MINIMUM == Minimum::None) {
      return bits_of(__hmul2_rn(integer, scale));
    } else {
      return bits_of(__hfma2(integer, scale, minimum));
    }
  }

  __device__ static __forceinline__ void fragments(const uint8_t* at, uint32_t lane,
                                                   uint32_t (&a)[PRODUCTS][FRAGMENT]) {
    uint32_t g = lane / 4, t = lane % 4;
    uint2 code[PRODUCTS];
    codes(at + g * 8, t, code);
    __half2 scale, minimum;
#pragma unroll
    for (unsigned p = 0; p < PRODUCTS; p++) {
      if (p == 0 || F::SUB == 16) {
        scales(at + F::STEP_BYTES, g, p, scale, minimum);
      }
      uint32_t word[2] = {code[p].x, code[p].y};
#pragma unroll
      for (unsigned o = 0; o < 2; o++) {
        __half2 s = o == 0 ? __low2half2(scale) : __high2half2(scale);
        __half2 m = s;
        if constexpr (F::MINIMUM != Minimum::None) {
          m = o == 0 ? __low2half2(minimum) : __high2half2(minimum);
        }
        a[p][o] = weight(integers<LOWER_BYTES>(word[o], F::EXCESS), s, m);
        a[p][2 + o] = weight(integers<UPPER_BYTES>(word[o], F::EXCESS), s, m);
      }
    }
  }

  // The output that row `g` (first) or `g` + 8 of a fragment is.
  __device__ static __forceinline__ uint32_t output(uint32_t g, bool first) {
    return 2 * g + (first ? 0 : 1);
  }
};

// Dense weights as they are: of every element the sixteen outputs', 32 bytes. Elements beyond the
// last are zeros. The chunks of a step are placed so that no two rows of a matrix that is loaded
// share a bank.
template <class T>
struct Dense {
  static constexpr unsigned BYTES = STEP * TILE * 2;

  __device__ static __forceinline__ size_t tile_bytes(uint32_t inputs) {
    return ((size_t)inputs * TILE * 2 + 63) / 64 * 64;
  }

  __device__ static __forceinline__ uint32_t place(uint32_t element, uint32_t half) {
    uint32_t chunk = element * 2 + half;
    return (chunk ^ (element >> 2 & 1) << 2 ^ (element >> 3 & 1)) * CHUNK;
  }

  __device__ static __forceinline__ void load(uint8_t* to, const uint8_t* tile, uint32_t inputs,
                                              uint32_t step, uint32_t at) {
    uint32_t element = at / (2 * CHUNK);
    to += place(element, at / CHUNK % 2);
    if (step * STEP + element < inputs) {
      copy_async<CHUNK>(to, tile + (size_t)step * BYTES + at);
    } else {
      *(uint4*)to = make_uint4(0, 0, 0, 0);
    }
  }

  __device__ static __forceinline__ void fragments(const uint8_t* at, uint32_t lane,
                                                   uint32_t (&a)[PRODUCTS][FRAGMENT]) {
    // Lane 8 m + r says where row r of matrix m is: an element's outputs, eight of them.
    uint32_t r = lane % 8, m = lane / 8;
    uint32_t element = r / 2 * 4 + r % 2 + m / 2 * 2;
#pragma unroll
    for (unsigned p = 0; p < PRODUCTS; p++) {
      uint32_t address = shared_address(at) + place(element + 16 * p, m % 2);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a[p][0]), "=r"(a[p][1]), "=r"(a[p][2]), "=r"(a[p][3])
                   : "r"(address)
                   : "memory");
    }
  }

  __device__ static __forceinline__ uint32_t output(uint32_t g, bool first) {
    return g + (first ? 0 : 8);
  }
};
