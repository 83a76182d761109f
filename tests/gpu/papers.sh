#!/bin/bash
# papers.sh DIRECTORY: what docs/papers.md still lacks figures for, on this machine's GPUs; five
# minutes at most. layouts.json, pack_papers.json, packing-1gpu.json, himeno-cut-*.json. In the
# simulator with small sizes, without the last two: SIMULATOR=1.
cd "$(dirname "$0")/../.." || exit 2
out=${1:?usage: papers.sh DIRECTORY}
mkdir -p "$out" || exit 2
bad=0
if [ -n "$SIMULATOR" ]; then
  export NUMBA_ENABLE_CUDASIM=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
  ranks() { local n=$1; shift; timeout "${LIMIT:-60}" mpiexec -n "$n" python3 "$@"; }
else
  . tests/gpu/setup.sh
fi
export GMPI_WATCHDOG_S=${GMPI_WATCHDOG_S:-8}  # who hangs says why before its time is up
LIMIT=${LIMIT:-70} ranks 2 benchmarks/layouts.py --json "$out/layouts.json" || bad=1
timeout "${LIMIT:-50}" python3 benchmarks/pack_papers.py --json "$out/pack_papers.json" || bad=1
if [ -z "$SIMULATOR" ]; then
  timeout 90 python3 benchmarks/pack_bench.py --json "$out/packing-1gpu.json" || bad=1
  for cut in 2,1,1 1,2,1; do # decomposed in i, and in j; both at once needs four ranks
    LIMIT=30 ranks 2 benchmarks/himeno/himeno_tuned.py --size S M L --decompose $cut \
      --iterations 1000 --repeat 3 --json "$out/himeno-cut-$cut.json" || bad=1
  done
  LIMIT=30 ranks 4 benchmarks/himeno/himeno_tuned.py --size S M L --decompose 2,2,1 \
    --iterations 1000 --repeat 3 --json "$out/himeno-cut-2,2,1.json" || bad=1
fi
exit $bad
