// Asynchronous copies from global into shared memory.
#pragma once

#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

template <unsigned BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  uint32_t shared = shared_address(to);
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(BYTES)
                 : "memory");
  }
}

// Sixteen bytes that stay in the first-level cache, for other blocks that read them as well.
__device__ __forceinline__ void copy_async_near(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}

// The first `bytes` of sixteen; zeros in place of the others, which are not read.
__device__ __forceinline__ void copy_async_filled(void* to, const void* from, uint32_t bytes) {
  uint32_t shared = shared_address(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most so many of this thread's newest groups of copies are under way.
template <unsigned NEWEST>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}
