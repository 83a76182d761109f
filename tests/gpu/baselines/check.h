// Ends the program where a call of CUDA's fails.
#pragma once
#include <stdio.h>
#include <stdlib.h>

#define OK(call)                                                               \
  do {                                                                         \
    cudaError_t error = call;                                                  \
    if (error != cudaSuccess) {                                                \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));           \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)
