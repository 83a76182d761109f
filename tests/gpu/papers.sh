#!/bin/bash
# papers.sh DIRECTORY: what docs/papers.md still lacks figures for, on this machine's GPUs, in
# BUDGET=550 seconds at most: layouts.json, pack_papers.json, packing-1gpu.json, himeno-cut-*.json,
# and what `gmpi tune` chooses (tune.json), which comes last. In the simulator with small sizes,
# without what needs a GPU: SIMULATOR=1. LIST=1 prints what would run.
cd "$(dirname "$0")/../.." || exit 2
out=${1:?usage: papers.sh DIRECTORY}
budget=550
. tests/gpu/one_by_one.sh
LIMIT=${LIMIT:-80} one layouts 2 benchmarks/layouts.py --json "$out/layouts.json"
one pack_papers 0 benchmarks/pack_papers.py --json "$out/pack_papers.json"
if [ -z "$SIMULATOR" ]; then
  LIMIT=${LIMIT:-90} one pack_bench 0 benchmarks/pack_bench.py --json "$out/packing-1gpu.json"
  for cut in 2,1,1 1,2,1 2,2,1; do # decomposed in i, in j, and in both
    options="--size S M L --decompose $cut --iterations 1000 --repeat 3 --json $out/himeno-cut-$cut.json"
    ranks=$((${cut:0:1} * ${cut:2:1}))
    # With MPS, where they share GPUs.
    one "himeno-cut-$cut" 0 -m gmpi run -n "$ranks" benchmarks/himeno/himeno_tuned.py $options
  done
  LIMIT=${LIMIT:-200} one tune 0 -m gmpi tune --json
  if [ -z "$LIST" ]; then
    python3 -m gmpi tune --show --json >"$out/tune.json"
    python3 -m gmpi tune --show
  fi
fi
exit $bad
