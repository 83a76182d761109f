// What a launch and a copy within one GPU take from C, with nothing else: JSON lines to stdout.
//   nvcc -O2 -arch=sm_90 tests/gpu/baselines/launch.cu -o launch && ./launch
// "host": the median of 2000 calls, us, with the GPU idle before each; "back_to_back": us of one of 200
// calls that are made one after the other, by events, the least of 15 times.
#include <cuda_runtime.h>
#include <stdio.h>
#include <time.h>
#include <algorithm>
#include <vector>

struct Arguments {
  long long words[24];
};
__global__ void few(long long a, long long b) {
  if (a == 12345 && threadIdx.x == 0) *(long long *)b = a;
}
__global__ void many(Arguments p) {
  if (p.words[0] == 12345 && threadIdx.x == 0) *(long long *)p.words[1] = 1;
}

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

template <class Call> void show(const char *name, cudaStream_t stream, Call call) {
  for (int i = 0; i < 100; i++) call();
  cudaStreamSynchronize(stream);
  std::vector<double> host;
  for (int i = 0; i < 2000; i++) {
    double before = now();
    call();
    host.push_back(now() - before);
    cudaStreamSynchronize(stream);
  }
  std::sort(host.begin(), host.end());
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e9f, ms;
  for (int i = 0; i < 15; i++) {
    call();
    cudaEventRecord(begin, stream);
    for (int k = 0; k < 200; k++) call();
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&ms, begin, end);
    best = std::min(best, ms);
  }
  printf("{\"what\": \"%s\", \"host\": %.3f, \"back_to_back\": %.3f}\n", name, host[1000], best * 1e3 / 200);
}

int main() {
  char *a, *b, name[80];
  cudaStream_t stream;
  Arguments arguments = {};
  if (cudaMalloc(&a, 8 << 20) || cudaMalloc(&b, 8 << 20)) return 1;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) return 1;
  show("C: kernel of 2 arguments", stream, [&] { few<<<1, 32, 0, stream>>>(1, 2); });
  show("C: kernel of 24 arguments", stream, [&] { many<<<256, 256, 0, stream>>>(arguments); });
  for (size_t n : {65536ul, 1048576ul}) {
    snprintf(name, sizeof name, "C: copy of %zu bytes", n);
    show(name, stream, [&] { cudaMemcpyAsync(b, a, n, cudaMemcpyDeviceToDevice, stream); });
    snprintf(name, sizeof name, "C: copy of %zu bytes in rows of 1 KiB", n);
    show(name, stream, [&] {
      cudaMemcpy2DAsync(b, 1024, a, 2048, 1024, n / 1024, cudaMemcpyDeviceToDevice, stream);
    });
  }
  return cudaDeviceSynchronize() != cudaSuccess;
}
