// What partitions need between two GPUs, without GMPI: one process, JSON to stdout.
//   nvcc -O3 -arch=sm_90 tests/gpu/baselines/partitioned_floor.cu -o floor && ./floor
// A block for each partition. One way, half a ping-pong, in us: "slowest" is the median over the rounds
// of the block that took longest, where all blocks of a GPU begin a round together, as in
// benchmarks/partitioned.py; "one" is that of the first block, where each goes on by itself. Packets
// carry 12 bytes and the round, and the receiver copies them out; "and fence" as GMPI needs it, so that
// other blocks may read what has come. Stores go to where they belong, then a fence and a flag. In the
// last round the receiver's bytes are checked.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <algorithm>
#include <vector>

#include "check.h"

enum { PACKETS, PACKETS_FENCE, STORES, KINDS };
const size_t INBOX = 1 << 26, USER = 1 << 25, WORDS = 1 << 16;
const int MOST_ROUNDS = 2000, MOST_BLOCKS = 128;

struct Side {
  char *inbox, *their_inbox, *out, *back, *their_back;
  uint32_t *credit, *their_credit, *flag, *their_flag, *met;
  long long *cycles;
};

__device__ uint32_t load(const uint32_t *at) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}

__device__ void store(uint32_t *at, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

__device__ void meet(uint32_t *met, uint32_t round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(met, 1);
    while (load(met) < round * gridDim.x) continue;
    __threadfence();
  }
  __syncthreads();
}

__device__ void send(const Side &s, int kind, uint32_t round, uint32_t n) {
  const uint32_t p = blockIdx.x, size = blockDim.x;
  if (threadIdx.x == 0)
    while ((int32_t)(load(s.credit + 32 * p) - round) < 0) continue;
  __syncthreads();
  const char *from = s.out + (size_t)p * n;
  if (kind != STORES) {
    const uint32_t *words = (const uint32_t *)from;
    uint4 *to = (uint4 *)(s.their_inbox + ((size_t)p * 2 + (round & 1)) * (INBOX / 2 / MOST_BLOCKS));
    const uint32_t count = (n + 11) / 12, left = n / 4;
    for (uint32_t u = threadIdx.x; u < count; u += size) {
      const uint32_t k = 3 * u;
      const uint32_t a = words[k], b = k + 1 < left ? words[k + 1] : 0, c = k + 2 < left ? words[k + 2] : 0;
      asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to + u), "r"(a), "r"(b), "r"(c),
                   "r"(round));
    }
  } else {
    const uint4 *words = (const uint4 *)from;
    uint4 *to = (uint4 *)(s.their_back + (size_t)p * n);
    const uint32_t count = n / 16;
    uint32_t i = threadIdx.x;
    for (; i + 3 * size < count; i += 4 * size) {
      const uint4 a = words[i], b = words[i + size], c = words[i + 2 * size], d = words[i + 3 * size];
      to[i] = a, to[i + size] = b, to[i + 2 * size] = c, to[i + 3 * size] = d;
    }
    for (; i < count; i += size) to[i] = words[i];
    for (uint32_t b = 16 * count + threadIdx.x; b < n; b += size) s.their_back[(size_t)p * n + b] = from[b];
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("fence.acq_rel.sys;" ::: "memory");
      store(s.their_flag + 32 * p, round);
    }
  }
}

__device__ void receive(const Side &s, int kind, uint32_t round, uint32_t n) {
  const uint32_t p = blockIdx.x, size = blockDim.x;
  char *to = s.back + (size_t)p * n;
  if (kind != STORES) {
    uint32_t *words = (uint32_t *)to;
    const uint4 *from = (const uint4 *)(s.inbox + ((size_t)p * 2 + (round & 1)) * (INBOX / 2 / MOST_BLOCKS));
    const uint32_t count = (n + 11) / 12, left = n / 4;
    for (uint32_t u = threadIdx.x; u < count; u += size) {
      uint4 v;
      do
        asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from + u)
                     : "memory");
      while (v.w != round);
      const uint32_t k = 3 * u;
      words[k] = v.x;
      if (k + 1 < left) words[k + 1] = v.y;
      if (k + 2 < left) words[k + 2] = v.z;
    }
    __syncthreads();
    if (kind == PACKETS_FENCE && threadIdx.x == 0) asm volatile("fence.acq_rel.gpu;" ::: "memory");
  } else if (threadIdx.x == 0) {
    uint32_t v;
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(s.flag + 32 * p) : "memory");
    while (v != round);
  }
  __syncthreads();
}

__global__ void rounds(Side s, int me, int kind, uint32_t n, int count, uint32_t before, int together) {
  for (int i = 0; i < count; i++) {
    const uint32_t round = before + i + 1;
    if (threadIdx.x == 0) store(s.their_credit + 32 * blockIdx.x, round);
    if (together) meet(s.met, i + 1);
    const long long begin = clock64();
    if (me == 0) send(s, kind, round, n);
    receive(s, kind, round, n);
    if (me == 1) send(s, kind, round, n);
    if (threadIdx.x == 0) s.cycles[(size_t)i * gridDim.x + blockIdx.x] = clock64() - begin;
  }
}

int main() {
  Side sides[2];
  cudaStream_t streams[2];
  cudaDeviceProp gpu;
  int khz;
  std::vector<char> bytes(USER);
  for (int d = 0; d < 2; d++) {
    Side &s = sides[d];
    OK(cudaSetDevice(d));
    OK(cudaDeviceEnablePeerAccess(1 - d, 0));
    OK(cudaMalloc(&s.inbox, INBOX));
    OK(cudaMemset(s.inbox, 0, INBOX));
    OK(cudaMalloc(&s.out, USER));
    OK(cudaMalloc(&s.back, USER));
    OK(cudaMalloc(&s.credit, 3 * WORDS));
    OK(cudaMemset(s.credit, 0, 3 * WORDS));
    s.flag = s.credit + WORDS / 4;
    s.met = s.credit + 2 * WORDS / 4;
    OK(cudaMalloc(&s.cycles, sizeof(long long) * MOST_ROUNDS * MOST_BLOCKS));
    for (size_t i = 0; i < USER; i++) bytes[i] = (char)(i * 7 + i / 251 + d);
    OK(cudaMemcpy(s.out, bytes.data(), USER, cudaMemcpyHostToDevice));
    OK(cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking));
  }
  for (int d = 0; d < 2; d++) {
    Side &s = sides[d], &t = sides[1 - d];
    s.their_inbox = t.inbox, s.their_back = t.back, s.their_credit = t.credit, s.their_flag = t.flag;
  }
  OK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
  OK(cudaGetDeviceProperties(&gpu, 0));
  OK(cudaDeviceSynchronize());
  const struct { uint32_t bytes; int partitions, threads; } cases[] = {
      {8, 1, 32}, {8, 1, 256}, {1024, 1, 256}, {4096, 1, 256}, {32768, 1, 512}, {65536, 32, 256},
      {262144, 32, 512}, {1 << 20, 32, 512}, {1 << 20, 64, 512}};
  const char *names[] = {"packets", "packets and fence", "stores"};
  printf("{\n \"gpu\": \"%s\",\n \"clock_khz\": %d,\n \"rows\": [", gpu.name, khz);
  uint32_t before = 0;
  bool first = true;
  for (auto &c : cases)
    for (int kind = 0; kind < KINDS; kind++) {
      const uint32_t n = c.bytes / c.partitions;
      double us[2];
      for (int together = 0; together < 2; together++) {
        std::vector<long long> all((size_t)MOST_ROUNDS * c.partitions), found;
        for (int d = 0; d < 2; d++) {
          OK(cudaSetDevice(d));
          OK(cudaMemset(sides[d].met, 0, 4));
          OK(cudaMemset(sides[d].back, 0, USER));
          OK(cudaDeviceSynchronize());
        }
        for (int d = 0; d < 2; d++) {
          OK(cudaSetDevice(d));
          rounds<<<c.partitions, c.threads, 0, streams[d]>>>(sides[d], d, kind, n, MOST_ROUNDS, before, together);
        }
        for (int d = 0; d < 2; d++) OK(cudaStreamSynchronize(streams[d]));
        before += MOST_ROUNDS;
        for (int d = 0; d < 2; d++) {
          OK(cudaMemcpy(bytes.data(), sides[d].back, c.bytes, cudaMemcpyDeviceToHost));
          for (size_t i = 0; i < c.bytes; i++)
            if (bytes[i] != (char)(i * 7 + i / 251 + 1 - d)) {
              fprintf(stderr, "%s of %u bytes: byte %zu is wrong\n", names[kind], c.bytes, i);
              return 1;
            }
        }
        OK(cudaMemcpy(all.data(), sides[0].cycles, all.size() * sizeof(long long), cudaMemcpyDeviceToHost));
        for (int i = MOST_ROUNDS / 10; i < MOST_ROUNDS; i++) {
          auto begin = all.begin() + (size_t)i * c.partitions;
          found.push_back(together ? *std::max_element(begin, begin + c.partitions) : *begin);
        }
        std::sort(found.begin(), found.end());
        us[together] = found[found.size() / 2] * 1e3 / khz / 2;
      }
      printf("%s\n  {\"bytes\": %u, \"partitions\": %d, \"threads\": %d, \"kind\": \"%s\", \"slowest\": %.2f, \"one\": %.2f}",
             first ? "" : ",", c.bytes, c.partitions, c.threads, names[kind], us[1], us[0]);
      first = false;
    }
  printf("\n ]\n}\n");
  return 0;
}
