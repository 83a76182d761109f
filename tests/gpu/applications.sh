#!/bin/bash
# applications.sh DIRECTORY [NAME...]: the applications in examples/ and their twins in
# benchmarks/twins/, each alone on this machine's GPUs, with RANKS=2 ranks. Each case runs RUNS=2
# times; all cases of a program share one start, and what its kernels take to compile. Each program
# has LIMIT=70 seconds, all together BUDGET=550.
# Writes applications-1gpu.json or applications-2gpu.json to DIRECTORY, and a table; what a former
# call with the same DIRECTORY has measured stays in them. SIMULATOR=N, LIST=1: as one_by_one.sh says.
cd "$(dirname "$0")/../.." || exit 2
out=${1:?usage: applications.sh DIRECTORY [NAME...]}
shift
budget=550
. tests/gpu/one_by_one.sh
n=${RANKS:-2} cases=$runs/applications
[ -n "$LIST" ] || mkdir -p "$cases"
wanted=" ${*:-halo26 spin_glass cg mg bfs heat stencil9 particles reshape hacc workers} "
compare() { # compare NAME CASE=OPTIONS...: the example, then its twin
  local name=$1 twin
  shift
  [[ $wanted == *" $name "* ]] || return
  [ -n "$SIMULATOR" ] && set -- small=--small
  run "$name,gmpi" "examples/$name.py" "$@"
  twin=benchmarks/twins/${name}_cuda_mpi.py
  [ -e "$twin" ] && run "$name,cuda_mpi" "$twin" "$@"
}
run() { # run NAME,WAY PROGRAM CASE=OPTIONS...
  local key=$1 program=$2
  shift 2
  LIMIT=${LIMIT:-70} one "${label:-}$(basename "$program" .py)" "$n" tests/gpu/cases.py "$cases" "$key" "$program" "${RUNS:-2}" "$@"
}
sizes() { # sizes OPTION VALUE...: a case of each
  local option=$1 value
  shift
  for value in "$@"; do echo "$value=$option $value"; done
}
mapfile -t halos < <(for points in 64 256; do for how in messages partitions; do
  echo "$points $how=--points $points --how $how"
done; done)
compare halo26 "${halos[@]}"
if [[ $wanted == *" halo26 "* ]]; then # beside the twin's, one call in place of 52
  whole=("64 neighbours=--points 64" "256 neighbours=--points 256")
  [ -n "$SIMULATOR" ] && whole=(neighbours=--small)
  run halo26,gmpi benchmarks/halo26_neighbours.py "${whole[@]}"
fi
mapfile -t lengths < <(for length in 64 128 256; do
  echo "$length=--length $length --sweeps 200 --nishimori"
done)
compare spin_glass "${lengths[@]}"
mapfile -t classes < <(sizes --class S W A B)
compare cg "${classes[@]:0:3}"
compare mg "${classes[@]}"
mapfile -t scales < <(sizes --scale 16 18 20)
compare bfs "${scales[@]}"
mapfile -t plates < <(for size in 258 514 1026; do
  echo "$size=--size $size,$size --tolerance 0 --limit 1000"
done)
compare heat "${plates[@]}" "2050=--size 2050,2050 --tolerance 0 --limit 200"
mapfile -t squares < <(sizes --sizes 128 256 512 1024 2048)
compare stencil9 "${squares[@]}"
mapfile -t cells < <(sizes --cells 16 32 64)
compare particles "${cells[@]}"
mapfile -t matrices < <(for size in 1024 4096; do for layout in columns turned; do
  for how in messages alltoall; do
    echo "$size $layout $how=--size $size --layout $layout --how $how"
  done
done; done)
compare reshape "${matrices[@]}"
mapfile -t structs < <(for particles in 512 4096 32768; do for how in struct packed; do
  echo "$particles $how=--particles $particles --how $how"
done; done)
compare hacc "${structs[@]}"
compare workers "200=--items 200"
# Its matrix takes the host longest.
[ -z "$SIMULATOR" ] && label=B RUNS=1 compare cg "B=--class B"
[ -n "$LIST" ] && exit
python3 tests/gpu/applications_table.py "$out/applications-${gpus}gpu.json" "$n" "$cases" || bad=1
exit $bad
