#!/bin/bash
# instructions.sh [DIRECTORY]: how many cycles each instruction of a short message takes, as Nsight
# Compute samples them: one rank on one GPU that sends 8 bytes to itself on the direct road, with and
# without a trace. JSON to DIRECTORY, or to $OUT; the costliest instructions come last. A minute.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh no-mps  # which cannot be profiled
out=${1:-${OUT:-docs/measurements}}
raw=$(mktemp -d)
mkdir -p "$out"
ncu=$(command -v ncu || ls -d /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -1)
if [ -z "$ncu" ]; then
  echo "error: ncu is not there: install Nsight Compute, or put it on PATH" >&2
  exit 2
fi
for name in plain traced; do
  timeout 60 "$ncu" -f -o "$raw/$name" --metrics group:smsp__pcsamp_warp_stall_reasons \
    --warp-sampling-interval 0 --warp-sampling-buffer-size 268435456 --cache-control none \
    --clock-control none -k regex:exchange_self --launch-skip 1 -c 1 \
    python3 tests/gpu/instructions.py run $([ $name = traced ] && echo --trace) &&
    "$ncu" --import "$raw/$name.ncu-rep" --page source --print-source sass --csv >"$raw/$name.csv"
done
python3 tests/gpu/instructions.py table "$raw" --json "$out/instructions-1gpu.json"
