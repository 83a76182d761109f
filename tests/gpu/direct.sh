#!/bin/bash
# direct.sh DIRECTORY [NAME...]: figures of the direct road on this machine's GPUs, all or those named,
# in BUDGET=580 seconds at most: roads-2gpu.json and so on (one GPU: -1gpu). LIST=1 prints what would
# run.
cd "$(dirname "$0")/../.." || exit 2
out=${1:?usage: direct.sh DIRECTORY [NAME...]}
wanted=" ${*:2} "
budget=580
. tests/gpu/one_by_one.sh
export GMPI_RUN=${GMPI_RUN:-$(date +%s)-$$}
measure() { # measure NAME PROGRAM ARGUMENT...
  local name=$1
  shift
  [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return 0
  one "$name" 2 "$@" --json "$out/$name-${gpus}gpu.json"
}
LIMIT=${LIMIT:-120} measure roads benchmarks/roads.py
measure partitioned benchmarks/partitioned.py
measure cold benchmarks/cold.py
measure collectives benchmarks/collectives.py -m 8 256 65536 --threads 256 1024
measure counts benchmarks/collectives.py --counts -m 8 1024 65536 --threads 256 1024
measure collectives_long benchmarks/collectives.py --long
measure onesided benchmarks/onesided.py
measure both_ways benchmarks/both_ways.py
measure late benchmarks/late.py
exit $bad
