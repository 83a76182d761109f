#!/bin/bash
# Kernels in CUDA C++, from CuPy and by nvcc, on two ranks: both examples first (payloads, sums, heat's
# bits), then the latency of the same ping-pong beside Numba's, in one process: cpp.sh [DIRECTORY]
# Writes cpp.json there, or to $OUT; ends with 1 where a payload is wrong, or where C++ takes more
# than 1.05 times as long as Numba (median of the ratios of RUNS=9 turns).
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
out=${1:-${OUT:-docs/measurements}}
folder=$(mktemp -d)
timeout 300 python3 -m gmpi cpp -o "$folder" --for examples/cpp/kernels.cu || exit 1
python3 examples/cpp/nvcc_kernels.py --build "$folder" || exit 1
LIMIT=150 ranks 2 examples/cpp/cupy_kernels.py || exit 1
LIMIT=120 ranks 2 examples/cpp/nvcc_kernels.py --library "$folder/libkernels.so" || exit 1
LIMIT=${LIMIT:-200} ranks 2 tests/gpu/cpp_latency.py --library "$folder/libkernels.so" \
  --runs "${RUNS:-9}" --json "$out/cpp.json"
