#!/bin/bash
# packing.sh DIRECTORY: packing on one GPU, in BUDGET=550 seconds at most. Tests on the device, then
# the benchmark, as packing-1gpu.json and packing.png; last the layouts that miss their bar.
# SIMULATOR=1: the tests alone. LIST=1 prints what would run.
cd "$(dirname "$0")/../.." || exit 2
out=${1:?usage: packing.sh DIRECTORY}
budget=550
. tests/gpu/one_by_one.sh
tests="tests/test_datatypes_device.py tests/test_pack_words.py tests/test_pack_tiles.py"
LIMIT=${LIMIT:-240} one tests 0 -m pytest -q -x -p no:cacheprovider $tests
LIMIT=${LIMIT:-100} one datatypes 2 tests/ranks/datatypes.py
if [ -z "$SIMULATOR" ]; then
  LIMIT=${LIMIT:-200} one pack_bench 0 benchmarks/pack_bench.py --json "$out/packing-1gpu.json" \
    --plot "$out/packing.png"
  [ -n "$LIST" ] || grep -w NO "$runs/pack_bench-0.log"
fi
exit $bad
