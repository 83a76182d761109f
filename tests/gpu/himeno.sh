#!/bin/bash
# himeno.sh DIRECTORY [quick]: the Himeno benchmark on this machine's GPUs, JSON to DIRECTORY.
# quick: correctness and the sweep's plans at S and L only.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
set -o pipefail
out=${1:?usage: himeno.sh DIRECTORY [quick]}
mkdir -p "$out"
sizes=S,M,L,XL
[ "$2" = quick ] && sizes=S,L
LIMIT=240 ranks 1 tests/gpu/himeno_sweeps.py --sizes $sizes --budget 52 --json "$out/himeno-sweeps.json" 2>&1 | tee "$out/himeno-sweeps.txt"
