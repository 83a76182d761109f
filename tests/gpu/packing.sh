#!/bin/bash
# Packing on one GPU: packing.sh [DIRECTORY]. Tests on the device, then the benchmark.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
out=${1:-docs/measurements}
mkdir -p "$out"
set -x
timeout 240 python3 -m pytest -q -x -p no:cacheprovider tests/test_datatypes_device.py \
  tests/test_pack_words.py tests/test_pack_tiles.py
LIMIT=100 ranks 2 tests/ranks/datatypes.py
timeout 200 python3 benchmarks/pack_bench.py --json "$out/packing-1gpu.json" --plot "$out/packing.png"
