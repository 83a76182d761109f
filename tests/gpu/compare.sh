#!/bin/bash
# Two trees of the project in one run: compare.sh FORMER DIRECTORY. FORMER: the files of the tree to
# compare with (git archive COMMIT | tar -x -C FORMER). Two jobs of two ranks, one of each tree,
# with caches of its own, live through the whole comparison: they compile at the same time and then
# take turns (former, new, new, former, ...), RUNS=5 each. No turn begins after BUDGET=250 seconds,
# and a job that hangs is ended 30 seconds later. Two GPUs, or one with all ranks on it under MPS.
# SIZES and HIMENO choose what is measured, CHECK=XS what is compared with the serial program;
# FORMER_COMMIT and GMPI_COMMIT name the trees; SIMULATOR=1: without GPUs. Each run is in
# DIRECTORY/runs as soon as it has ended; the table always comes last.
usage='usage: compare.sh FORMER DIRECTORY'
former=$(cd "${1:?$usage}" && pwd) || exit 2
mkdir -p "${2:?$usage}" && out=$(cd "$2" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
new=$PWD
began=$SECONDS
until=$(($(date +%s) + ${BUDGET:-250}))
caches=$(mktemp -d)
names=(former new) trees=("$former" "$new") pids=()
commits=("${FORMER_COMMIT:-former}" "${GMPI_COMMIT:-}")
SITE=$PYTHONPATH
ways() { # ways 0|1: the environment of a tree
  echo GMPI_CACHE_DIR="${CACHES:-$caches}/gmpi-${names[$1]}" \
    NUMBA_CACHE_DIR="${CACHES:-$caches}/numba-${names[$1]}" \
    PYTHONPATH="${trees[$1]}${SITE:+:$SITE}" ${commits[$1]:+GMPI_COMMIT="${commits[$1]}"}
}
if [ -n "$SIMULATOR" ]; then
  export NUMBA_ENABLE_CUDASIM=1
  gpus=2
else
  (cd "$former" && export CUDA_MODULE_LOADING=EAGER $(ways 0) && timeout 120 python3 -m gmpi cache fill) &
  filling=$!
  export GMPI_CACHE_DIR=${CACHES:-$caches}/gmpi-new
  . tests/gpu/setup.sh
  wait $filling
fi
export GMPI_WATCHDOG_S=${GMPI_WATCHDOG_S:-8}  # who hangs says why before its time is up
trap '[ "$gpus" = 1 ] && echo quit | nvidia-cuda-mps-control; rm -rf "$caches"' EXIT
trap 'kill "${pids[@]}" 2>/dev/null' TERM INT # the table all the same
runs=$out/runs
rm -rf "$runs" && mkdir "$runs" || exit 2
job() { # job 0|1: until the last turn
  cd "${trees[$1]}" && export $(ways "$1")
  exec timeout -k 10 $((until - $(date +%s) + 30)) mpirun --bind-to none -n 2 \
    python3 "$new/tests/gpu/compare_run.py" "${trees[$1]}" "$runs" --name "${names[$1]}" \
    --names "${names[@]}" --runs "${RUNS:-5}" --until "$until" \
    --sizes ${SIZES:-8 1024 65536 1048576} --himeno ${HIMENO-S M L XL} ${CHECK:+--check "$CHECK"} \
    ${REPEAT:+--repeat "$REPEAT"}
}
for tree in 0 1; do
  (job $tree) >"$runs/${names[$tree]}.log" 2>&1 &
  pids[tree]=$!
done
bad=0 kill_at=
tail -qn +1 -F "$runs/former.log" "$runs/new.log" 2>/dev/null &
showing=$!
while ((${#pids[@]})); do
  for tree in "${!pids[@]}"; do
    kill -0 "${pids[$tree]}" 2>/dev/null && continue
    wait "${pids[$tree]}"
    status=$?
    unset "pids[$tree]"
    touch "$runs/ended-${names[$tree]}" # the other does not wait for it
    ((status)) || continue
    bad=1
    echo "the job of the ${names[$tree]} tree ended with status $status"
    kill_at=${kill_at:-$((SECONDS + 20))} # should the other hang as well
  done
  [ -n "$kill_at" ] && ((SECONDS > kill_at)) && kill "${pids[@]}" 2>/dev/null
  sleep 0.2
done
sleep 0.5
kill $showing
echo "# $((SECONDS - began)) s"
python3 tests/gpu/compare_table.py "$runs" --json "$out/compare.json" || bad=1
exit $bad
