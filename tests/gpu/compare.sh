#!/bin/bash
# Two trees of the project in one run: compare.sh FORMER DIRECTORY. FORMER: the files of the tree to
# compare with (git archive COMMIT | tar -x -C FORMER). RUNS=5 times each, in turns (former, new, new,
# former, ...), as far as BUDGET=460 seconds go. Each in a process of its own, with caches of its own
# that are filled first. Two GPUs, or one with both ranks on it under MPS. SIZES and HIMENO choose
# what is measured; FORMER_COMMIT and GMPI_COMMIT name the trees. The table comes last.
usage='usage: compare.sh FORMER DIRECTORY'
former=$(cd "${1:?$usage}" && pwd) || exit 2
mkdir -p "${2:?$usage}" && out=$(cd "$2" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
new=$PWD
caches=$(mktemp -d)
budget=${BUDGET:-460}
names=([0]=former [1]=new)
trees=("$former" "$new")
commits=("${FORMER_COMMIT:-former}" "${GMPI_COMMIT:-}")
ways() { # ways 0|1: the environment of a tree
  echo GMPI_CACHE_DIR="$caches/gmpi-${names[$1]}" NUMBA_CACHE_DIR="$caches/numba-${names[$1]}" \
    PYTHONPATH="${trees[$1]}${SITE:+:$SITE}" ${commits[$1]:+GMPI_COMMIT="${commits[$1]}"}
}
SITE=$PYTHONPATH
once() { # once 0|1 arguments: one process of two ranks
  local tree=$1; shift
  (cd "${trees[$tree]}" && export $(ways "$tree") && LIMIT="${LIMIT:-60}" \
    ranks 2 "$new/tests/gpu/compare_run.py" "${trees[$tree]}" \
    --sizes ${SIZES:-8 1024 65536 1048576} --himeno ${HIMENO-S M L XL} "$@")
}
began=$SECONDS
(cd "$former" && export CUDA_MODULE_LOADING=EAGER $(ways 0) && timeout 120 python3 -m gmpi cache fill) &
filling=$!
export GMPI_CACHE_DIR=$caches/gmpi-new
. tests/gpu/setup.sh
wait $filling
export GMPI_WATCHDOG_S=${GMPI_WATCHDOG_S:-8}  # who hangs says why before its time is up
trap '[ "$gpus" = 1 ] && echo quit | nvidia-cuda-mps-control; rm -rf "$caches"' EXIT
# Right results first; host functions and kernels are compiled meanwhile.
for tree in 0 1; do
  LIMIT=${LIMIT:-90} once $tree --check || { echo "${names[$tree]}: wrong, nothing measured"; exit 1; }
done
runs=$caches/runs && mkdir "$runs"
bad=0 longest=0
for ((run = 0; run < ${RUNS:-5}; run++)); do
  for turn in 0 1; do
    tree=$(((turn + run) % 2))
    if ((SECONDS - began + longest > budget)); then
      echo "no time for run $((run + 1)) of the ${names[$tree]} tree"
      continue
    fi
    begin=$SECONDS
    once $tree --json "$runs/${names[$tree]}-$run.json" >"$runs/log" 2>&1 ||
      { bad=1; cat "$runs/log"; echo "run $((run + 1)) of the ${names[$tree]} tree failed"; }
    grep -a -A1 ': one way' "$runs/log"
    ((SECONDS - begin > longest)) && longest=$((SECONDS - begin))
  done
done
echo "# $((SECONDS - began)) s"
python3 tests/gpu/compare_table.py "$runs" --json "$out/compare.json" || bad=1
exit $bad
