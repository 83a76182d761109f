#!/bin/bash
# Regenerates docs/measurements/*.json on a machine with GPUs: measure.sh [DIRECTORY]
# One GPU: two ranks share it under MPS. Two or more: one each. Every program has a time limit.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
out=${1:-docs/measurements}
mkdir -p "$out"
kind=${gpus}gpu
set -x
ranks 2 examples/hello.py
LIMIT=240 ranks 2 examples/pingpong.py -m "${SIZES:-0:64M}" --json "$out/pingpong-$kind.json"
LIMIT=100 ranks 2 examples/pingpong.py -m 8:8 --engine mpi4py --no-conventional --json "$out/pingpong-mpi4py-$kind.json"
LIMIT=120 ranks 2 examples/rates.py --json "$out/rates-$kind.json"
