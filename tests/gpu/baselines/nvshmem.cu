// NVSHMEM ping-pong: put with a signal by one block, wait for the signal. Two processes, a GPU each:
//   nvshmem 1 FILE & nvshmem 0 FILE      (FILE: where they meet; must not exist)
// Rank 0 prints "nvshmem SIZE p1 p50 p90 p99 min max n", one way in us, a line for each size.
// Every byte that arrived is compared afterwards.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <unistd.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#define CHECK(call)                                                                      \
  do {                                                                                   \
    cudaError_t error = (call);                                                          \
    if (error != cudaSuccess) {                                                          \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                     \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

__global__ void pingpong(int me, uint64_t* signal, char* to, const char* from, size_t nbytes, int rounds,
                         long long* cycles) {
  int peer = 1 - me;
  for (int i = 1; i <= rounds; i++) {
    __syncthreads();
    long long begin = clock64();
    if (me == 0) nvshmemx_putmem_signal_nbi_block(to, from, nbytes, signal, i, NVSHMEM_SIGNAL_SET, peer);
    if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, i);
    __syncthreads();
    if (me == 1) nvshmemx_putmem_signal_nbi_block(to, from, nbytes, signal, i, NVSHMEM_SIGNAL_SET, peer);
    __syncthreads();
    if (threadIdx.x == 0) cycles[i - 1] = clock64() - begin;
  }
}

// Cycles and nanoseconds of 20 ms: the rate of the clock.
__global__ void clock_rate(long long* out) {
  long long begin = clock64(), start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < 20000000);
  out[0] = clock64() - begin;
  out[1] = now - start;
}

__global__ void fill(char* data, size_t nbytes, int rank) {
  for (size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x; k < nbytes; k += gridDim.x * (size_t)blockDim.x)
    data[k] = (char)(k * 7 + rank * 13 + 1);
}

__global__ void compare(const char* data, size_t nbytes, int rank, int* wrong) {
  for (size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x; k < nbytes; k += gridDim.x * (size_t)blockDim.x)
    if (data[k] != (char)(k * 7 + rank * 13 + 1)) atomicAdd(wrong, 1);
}

static void meet(int rank, const char* path) {
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  char part[4096];
  snprintf(part, sizeof part, "%s.part", path);
  if (rank == 0) {
    nvshmemx_get_uniqueid(&id);
    FILE* file = fopen(part, "wb");
    fwrite(&id, sizeof id, 1, file);
    fclose(file);
    rename(part, path);
  } else {
    while (access(path, R_OK)) usleep(1000);
    FILE* file = fopen(path, "rb");
    if (fread(&id, sizeof id, 1, file) != 1) exit(1);
    fclose(file);
  }
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  nvshmemx_set_attr_uniqueid_args(rank, 2, &id, &attributes);
  int error = nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes);
  if (error) {
    fprintf(stderr, "nvshmemx_init_attr: %d\n", error);
    exit(1);
  }
}

int main(int count, char** words) {
  if (count != 3) return 2;
  int rank = atoi(words[1]);
  CHECK(cudaSetDevice(rank));
  meet(rank, words[2]);
  const size_t most = 64 << 20;
  const int most_rounds = 5000;
  uint64_t* signal = (uint64_t*)nvshmem_malloc(64);
  char* to = (char*)nvshmem_malloc(most);
  char* from = (char*)nvshmem_malloc(most);
  long long *cycles, rate[2];
  int *wrong, bad = 0;
  CHECK(cudaMalloc(&cycles, most_rounds * sizeof *cycles));
  CHECK(cudaMalloc(&wrong, sizeof *wrong));
  CHECK(cudaMemset(wrong, 0, sizeof *wrong));
  fill<<<256, 256>>>(from, most, rank);
  for (int k = 0; k < 2; k++) clock_rate<<<1, 32>>>(cycles);
  CHECK(cudaMemcpy(rate, cycles, sizeof rate, cudaMemcpyDeviceToHost));
  for (size_t nbytes : {8ul, 1ul << 10, 8ul << 10, 64ul << 10, 1ul << 20, 16ul << 20, 64ul << 20}) {
    int rounds = nbytes <= 8192 ? most_rounds : nbytes <= 1 << 20 ? 500 : 30;
    int skip = rounds / 10;
    CHECK(cudaMemset(signal, 0, 64));
    CHECK(cudaMemset(to, 0, nbytes));
    CHECK(cudaDeviceSynchronize());
    nvshmem_barrier_all();
    pingpong<<<1, nbytes > 4096 ? 1024 : 32>>>(rank, signal, to, from, nbytes, rounds, cycles);
    CHECK(cudaDeviceSynchronize());
    compare<<<256, 256>>>(to, nbytes, 1 - rank, wrong);
    CHECK(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost));
    if (bad) {
      fprintf(stderr, "NVSHMEM, %zu bytes: %d bytes are wrong\n", nbytes, bad);
      return 1;
    }
    std::vector<long long> took(rounds);
    CHECK(cudaMemcpy(took.data(), cycles, rounds * sizeof(long long), cudaMemcpyDeviceToHost));
    std::vector<double> us;
    for (int i = skip; i < rounds; i++) us.push_back(took[i] * 1e-3 * rate[1] / rate[0] / 2);
    std::sort(us.begin(), us.end());
    size_t n = us.size();
    if (rank == 0)
      printf("nvshmem %zu %.4f %.4f %.4f %.4f %.4f %.4f %zu\n", nbytes, us[n / 100], us[n / 2], us[n * 9 / 10],
             us[n * 99 / 100], us[0], us[n - 1], n);
    fflush(stdout);
    nvshmem_barrier_all();
  }
  nvshmem_free(from);
  nvshmem_free(to);
  nvshmem_free(signal);
  nvshmem_finalize();
}
