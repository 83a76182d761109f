#!/bin/bash
# Regenerates docs/measurements/*.json on a machine with GPUs: measure.sh [DIRECTORY]
# One GPU: two ranks share it under MPS. Two or more: one each, and what users would pick instead
# (baselines/peers.sh, with the wheels in WHEELS=.ucx). Every program has a time limit. RUNS=5 times
# the rates, as a range.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
out=${1:-docs/measurements}
mkdir -p "$out"
kind=${gpus}gpu
# In every file: figures of one run may stand beside each other.
export GMPI_RUN=${GMPI_RUN:-$(date +%s)-$$}
set -x
ranks 2 examples/hello.py
LIMIT=240 ranks 2 benchmarks/pingpong.py -m "${SIZES:-0:64M}" --json "$out/pingpong-$kind.json"
[ "$gpus" = 1 ] || tests/gpu/baselines/peers.sh "$out" "${WHEELS:-.ucx}"
LIMIT=100 ranks 2 benchmarks/pingpong.py -m 8:8 --engine mpi4py --no-conventional --json "$out/pingpong-mpi4py-$kind.json"
LIMIT=120 ranks 2 benchmarks/rates.py --json "$out/rates-$kind.json"
LIMIT=90 ranks 2 benchmarks/streaming.py --json "$out/streaming-$kind.json"
LIMIT=90 ranks 2 benchmarks/layouts.py --only gaps --json "$out/gaps-$kind.json"
runs=$(mktemp -d)
for ((run = 0; run < ${RUNS:-5}; run++)); do
  LIMIT=60 ranks 2 benchmarks/rates.py --only records requests messages --json "$runs/$run.json"
done
python3 tests/gpu/rates_runs.py "$out/rates_runs-$kind.json" "$runs"/*.json
rm -r "$runs"
