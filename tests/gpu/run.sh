#!/bin/bash
# Runs the tests marked gpu on a machine with one GPU or more: run.sh [pytest arguments]
# What became of each goes to gpu_tests-KIND.json in docs/measurements, or in $OUT: commit it, and
# docs/measurements/table.py writes into docs/measuring.md at which commit they last passed. After
# LIMIT=500 s no further test is begun, so that the file is written all the same; with --rest a later
# run of the same commit adds what is missing in it.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh mps
export NUMBA_ENABLE_CUDASIM=0
limit=${LIMIT:-500}
timeout $((limit + 120)) python3 -m pytest -m gpu --durations=0 --session-timeout="$limit" \
  tests/test_gpu.py \
  --outcomes "${OUT:-docs/measurements}/gpu_tests-$([ "$gpus" = 1 ] && echo 1gpu || echo 2gpu).json" "$@"
