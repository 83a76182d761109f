#!/bin/bash
# instructions.sh [DIRECTORY]: how many cycles each instruction of a short message takes, as Nsight
# Compute samples them: one rank on one GPU that sends 8 bytes to itself on the direct road, with and
# without a trace, 64 KiB by 1024 threads, and 1 KiB with gaps by 256. JSON to DIRECTORY, or to $OUT.
# What ncu has printed goes to RAW, where it is given. A minute.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh no-mps  # which cannot be profiled
out=${1:-${OUT:-docs/measurements}}
raw=${RAW:-$(mktemp -d)}
mkdir -p "$out" "$raw"
ncu=$(command -v ncu || ls -d /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -1)
if [ -z "$ncu" ]; then
  echo "error: ncu is not there: install Nsight Compute, or put it on PATH" >&2
  exit 2
fi
sample() { # sample NAME THREADS [OPTION...]
  local report=$raw/$1-$2
  timeout 60 "$ncu" -f -o "$report" --metrics group:smsp__pcsamp_warp_stall_reasons \
    --warp-sampling-interval 0 --warp-sampling-buffer-size 268435456 --cache-control none \
    --clock-control none -k regex:exchange_self --launch-skip 1 -c 1 \
    python3 tests/gpu/instructions.py run --threads "$2" "${@:3}" &&
    "$ncu" --import "$report.ncu-rep" --page source --print-source sass --csv >"$report.csv"
  rm -f "$report.ncu-rep"
}
sample plain 32
sample traced 32 --trace
sample long 1024 --bytes 65536
sample gaps 256 --bytes 1024 --gaps
python3 tests/gpu/instructions.py table "$raw" --json "$out/instructions-1gpu.json"
