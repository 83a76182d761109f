// What one GPU needs for another's memory, without GMPI: one process, two GPUs, JSON to stdout.
//   nvcc -O3 -arch=sm_90 tests/gpu/baselines/onesided_floor.cu -o floor && ./floor
// Medians of 2000 by the clock of the multiprocessor, one warp: a store of 8 bytes and a fence of system
// scope, or fences alone, an atomic addition that returns what was there, a load; the longest of all blocks for copies of
// 64 MiB by 132 blocks with stores of 16 bytes, or with loads.
#include <cuda_runtime.h>
#include <stdio.h>
#include <algorithm>
#include <vector>

#include "check.h"

enum { PUT, FENCE, RELEASE, ONE, GPU, FETCH, LOAD, STEPS };
const int ROUNDS = 2000;

__global__ void step(unsigned long long *there, unsigned long long *here, long long *cycles, int what) {
  unsigned long long seen = 0;
  for (int i = 0; i < ROUNDS; i++) {
    __syncwarp();
    long long begin = clock64();
    if (what < GPU && threadIdx.x == 0 && what != FENCE) *(volatile unsigned long long *)there = seen + i;
    if (what == PUT || what == FENCE || (what == ONE && threadIdx.x == 0)) {
      asm volatile("fence.acq_rel.sys;" ::: "memory");
    } else if (what == RELEASE) {
      if (threadIdx.x == 0) asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(there + 1), "l"(seen) : "memory");
    } else if (what == GPU) {
      asm volatile("fence.acq_rel.gpu;" ::: "memory");
    } else if (what == FETCH && threadIdx.x == 0) {
      asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], 1;" : "=l"(seen) : "l"(there) : "memory");
      here[1] = seen;
    } else if (what == LOAD && threadIdx.x == 0) {
      asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(there) : "memory");
      here[1] = seen;
    }
    __syncwarp();
    if (threadIdx.x == 0) cycles[i] = clock64() - begin;
  }
}

__global__ void move(uint4 *to, const uint4 *from, size_t n, int fenced) {
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += 4 * step) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (i + k * step < n) v[k] = from[i + k * step];
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (i + k * step < n) to[i + k * step] = v[k];
  }
  if (fenced) asm volatile("fence.acq_rel.sys;" ::: "memory");
}

int main() {
  const size_t BYTES = 64 << 20;
  const char *names[] = {"store and fence", "fence", "store and release", "store and fence by one thread",
                         "fence of the GPU's scope", "fetch and add", "load"};
  char *mine, *there;
  long long *cycles;
  int khz;
  cudaDeviceProp gpu;
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&there, BYTES));
  OK(cudaMemset(there, 0, BYTES));
  OK(cudaSetDevice(0));
  OK(cudaDeviceEnablePeerAccess(1, 0));
  OK(cudaMalloc(&mine, BYTES));
  OK(cudaMemset(mine, 0, BYTES));
  OK(cudaMalloc(&cycles, ROUNDS * sizeof *cycles));
  OK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
  OK(cudaGetDeviceProperties(&gpu, 0));
  printf("{\n \"gpu\": \"%s\",\n \"clock_khz\": %d,\n \"cycles\": {", gpu.name, khz);
  std::vector<long long> found(ROUNDS);
  for (int what = 0; what < STEPS; what++) {
    step<<<1, 32>>>((unsigned long long *)there, (unsigned long long *)mine, cycles, what);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(found.data(), cycles, ROUNDS * sizeof *cycles, cudaMemcpyDeviceToHost));
    std::sort(found.begin(), found.end());
    printf("%s\n  \"%s\": %lld", what ? "," : "", names[what], found[ROUNDS / 2]);
  }
  printf("\n },\n \"gb_per_s\": {");
  cudaEvent_t begin, end;
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreate(&end));
  for (int pull = 0; pull < 2; pull++)
    for (int threads = 256; threads <= 1024; threads *= 2) {
      float best = 1e9f, ms;
      for (int i = 0; i < 20; i++) {
        OK(cudaEventRecord(begin));
        move<<<132, threads>>>((uint4 *)(pull ? mine : there), (uint4 *)(pull ? there : mine), BYTES / 16, 1);
        OK(cudaEventRecord(end));
        OK(cudaEventSynchronize(end));
        OK(cudaEventElapsedTime(&ms, begin, end));
        best = std::min(best, ms);
      }
      printf("%s\n  \"%s, %d threads\": %.1f", pull || threads > 256 ? "," : "", pull ? "load" : "store", threads,
             BYTES / best / 1e6);
    }
  float best = 1e9f, ms;
  for (int i = 0; i < 20; i++) {
    OK(cudaEventRecord(begin));
    OK(cudaMemcpyPeerAsync(there, 1, mine, 0, BYTES, 0));
    OK(cudaEventRecord(end));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, ms);
  }
  printf(",\n  \"copy engine\": %.1f\n }\n}\n", BYTES / best / 1e6);
  return 0;
}
