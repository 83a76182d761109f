#!/bin/bash
# Runs the tests marked gpu on a machine with one GPU or more: run.sh [pytest arguments]
# What became of each goes to gpu_tests-KIND.json in docs/measurements, or in $OUT: commit it, and
# docs/measurements/table.py tells the README at which commit they last passed.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
export NUMBA_ENABLE_CUDASIM=0
timeout "${LIMIT:-400}" python3 -m pytest -m gpu --durations=0 tests/test_gpu.py \
  --outcomes "${OUT:-docs/measurements}/gpu_tests-$([ "$gpus" = 1 ] && echo 1gpu || echo 2gpu).json" "$@"
