// Launches of kernels.cu for another program: a shared library with C functions.
//
// Python opens the context and hands it over as one argument (nvcc_kernels.py).
#include <cuda_runtime.h>
#include "kernels.cu"

extern "C" int launch_pingpong(gmpi_context ctx, long long threads, char *buf, long long nbytes,
                               long long rounds, long long *nanoseconds) {
    pingpong<<<1, threads>>>(ctx, buf, nbytes, rounds, nanoseconds);
    return cudaGetLastError();
}

extern "C" int launch_sum(gmpi_context ctx, long long threads, double *values, long long n,
                          long long rounds, long long *nanoseconds) {
    sum<<<1, threads>>>(ctx, values, n, rounds, nanoseconds);
    return cudaGetLastError();
}

// How many blocks of heat() the GPU holds at once.
extern "C" int resident_heat(long long threads) {
    int device = 0, processors = 0, each = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, heat, threads, 0);
    return each * processors;
}

extern "C" int launch_heat(gmpi_context ctx, long long blocks, long long threads, double *u,
                           double *v, long long rows, long long columns, long long north,
                           long long south, long long west, long long east, long long column,
                           double *change, double tolerance, long long every, long long limit,
                           long long *steps) {
    void *arguments[] = {&ctx, &u, &v, &rows, &columns, &north, &south, &west, &east, &column,
                         &change, &tolerance, &every, &limit, &steps};
    return cudaLaunchCooperativeKernel((void *)heat, blocks, threads, arguments, 0, 0);
}
