#!/bin/bash
# What traces cost: 8 bytes one way with and without a trace file, in turns, on both roads, between two
# GPUs or two ranks that share one: trace_cost.sh [DIRECTORY]. Writes trace_cost-KIND.json there, or to
# $OUT; two minutes. Ends with 1 where a traced ping-pong takes more than 1.05 times as long as one without,
# or where a kernel that is not traced reads the timer. The table comes last.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
out=${1:-${OUT:-docs/measurements}}
mkdir -p "$out"
LIMIT=${LIMIT:-150} ranks 2 tests/gpu/trace_cost.py --turns "${TURNS:-5}" --json "$out/trace_cost-${gpus}gpu.json"
