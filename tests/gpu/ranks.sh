#!/bin/bash
# Rank programs on this machine's GPUs, two ranks each: ranks.sh [LINE...]
# LINE: a program in tests/ranks as in tests/test_gpu.py, "ENGINE=mpi4py direct --some"; without any,
# those there about messages, the direct road, collectives, one-sided calls and requests. JOBS of them
# run at once, since most of their time is their compiler's; all end within LIMIT=400 s, each within
# EACH=200 s. One line for each as it ends; ranks-KIND.json in docs/measurements, or in $OUT, has what
# those printed that failed. tests/gpu/run.sh runs all programs, and the other tests, by pytest.
# SIMULATOR=N: in the simulator, as with N GPUs.
cd "$(dirname "$0")/../.." || exit 2
until=$(($(date +%s) + ${LIMIT:-400}))
if [ -n "$SIMULATOR" ]; then
  export NUMBA_ENABLE_CUDASIM=1
  gpus=$SIMULATOR
else
  . tests/gpu/setup.sh
fi
out=${OUT:-docs/measurements}
mkdir -p "$out"
kind=$([ "$gpus" = 1 ] && echo 1gpu || echo 2gpu)
timeout -k 10 $((until - $(date +%s) + 20)) python3 tests/gpu/ranks.py \
  --until "$until" --each "${EACH:-200}" ${JOBS:+--jobs "$JOBS"} \
  --json "$out/ranks-$kind.json" "$@"
