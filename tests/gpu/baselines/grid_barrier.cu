// What a barrier of all blocks of a grid that stays takes, without GMPI: JSON to stdout.
//   nvcc -O3 -arch=sm_90 tests/gpu/baselines/grid_barrier.cu -o barrier && ./barrier
// Blocks meet 2000 times; us of a meeting, the median of five launches. With "work", each thread also
// stores a word before a meeting, and loads another block's word behind it.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <algorithm>
#include <vector>

#include "check.h"

// CUDA's; a fence, a count, relaxed looks, a fence; a release, acquire looks; the same, by those who
// have been counted: a look that comes before holds up others that are to be counted.
enum { CUDA, FENCES, ACQUIRE, COUNTED, KINDS };
const char *const NAMES[KINDS] = {"cuda", "fences", "acquire", "counted"};
const int FIRST = 100, MEETINGS = 2100, LAUNCHES = 5;

__device__ uint64_t look(const uint64_t *at, bool acquires) {
  uint64_t v;
  if (acquires)
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  else
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}

template <int KIND> __device__ void meet(uint64_t *met, int n) {
  if (KIND == CUDA) {
    cooperative_groups::this_grid().sync();
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    uint64_t wanted = (uint64_t)(n + 1) * gridDim.x, come = 0;
    if (KIND == FENCES) __threadfence();
    if (KIND == FENCES)
      asm volatile("red.relaxed.gpu.add.u64 [%0], 1;" ::"l"(met) : "memory");
    else if (KIND == ACQUIRE)
      asm volatile("red.release.gpu.add.u64 [%0], 1;" ::"l"(met) : "memory");
    else
      asm volatile("atom.release.gpu.add.u64 %0, [%1], 1;" : "=l"(come) : "l"(met) : "memory");
    while (come < wanted) come = look(met, KIND != FENCES);
    if (KIND == FENCES) __threadfence();
  }
  __syncthreads();
}

template <int KIND>
__global__ void stay(uint64_t *met, uint32_t *words, bool works, long long *cycles, int *wrong) {
  const int next = (blockIdx.x + 1) % gridDim.x;
  uint32_t *mine = words + blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t *theirs = words + next * blockDim.x + threadIdx.x;
  long long began = 0;
  for (int n = 0; n < MEETINGS; n++) {
    if (n == FIRST) began = clock64();
    if (works) *(volatile uint32_t *)mine = n;
    meet<KIND>(met, n);
    // The other block may be one meeting ahead.
    if (works && *(volatile uint32_t *)theirs - n > 1) atomicAdd(wrong, 1);
  }
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - began;
}

template <int KIND> void measure(int blocks, int threads, bool works, int khz, bool last) {
  uint64_t *met;
  uint32_t *words;
  long long *cycles, first;
  int *wrong, any = 0;
  OK(cudaMalloc(&met, sizeof *met));
  OK(cudaMalloc(&words, sizeof *words * blocks * threads));
  OK(cudaMalloc(&cycles, sizeof *cycles * blocks));
  OK(cudaMalloc(&wrong, sizeof *wrong));
  OK(cudaMemset(wrong, 0, sizeof *wrong));
  std::vector<double> us;
  for (int k = 0; k < LAUNCHES; k++) {
    OK(cudaMemset(met, 0, sizeof *met));
    void *arguments[] = {&met, &words, &works, &cycles, &wrong};
    OK(cudaLaunchCooperativeKernel((void *)stay<KIND>, blocks, threads, arguments, 0, 0));
    OK(cudaMemcpy(&first, cycles, sizeof first, cudaMemcpyDefault));
    us.push_back(first * 1e3 / khz / (MEETINGS - FIRST));
  }
  OK(cudaMemcpy(&any, wrong, sizeof any, cudaMemcpyDefault));
  if (any != 0) {
    fprintf(stderr, "%s: %d old words\n", NAMES[KIND], any);
    exit(1);
  }
  std::sort(us.begin(), us.end());
  printf("  {\"kind\": \"%s\", \"blocks\": %d, \"threads\": %d, \"work\": %s, \"us\": %.2f}%s\n",
         NAMES[KIND], blocks, threads, works ? "true" : "false", us[LAUNCHES / 2], last ? "" : ",");
  OK(cudaFree(met));
  OK(cudaFree(words));
  OK(cudaFree(cycles));
  OK(cudaFree(wrong));
}

int main() {
  int khz;
  cudaDeviceProp about;
  OK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
  OK(cudaGetDeviceProperties(&about, 0));
  printf("{\"benchmark\": \"grid_barrier\", \"where\": \"%s\", \"clock_khz\": %d, \"rows\": [\n",
         about.name, khz);
  for (int shape = 0; shape < 2; shape++)
    for (int works = 0; works < 2; works++) {
      const int blocks = shape ? 132 : 264, threads = shape ? 512 : 256;
      measure<CUDA>(blocks, threads, works, khz, false);
      measure<FENCES>(blocks, threads, works, khz, false);
      measure<ACQUIRE>(blocks, threads, works, khz, false);
      measure<COUNTED>(blocks, threads, works, khz, shape && works);
    }
  printf(" ]}\n");
  return 0;
}
