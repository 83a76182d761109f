#!/bin/bash
# applications.sh DIRECTORY [NAME...]: the applications in examples/ and their twins in
# benchmarks/twins/, each alone on this machine's GPUs, with RANKS=2 ranks. Each case runs RUNS=2
# times; all cases of a program share one start. All programs start at once and compile, in
# COMPILING=150 seconds at most; then they measure, one after the other, LIMIT=70 seconds each. All
# together have BUDGET=550.
# Writes applications-1gpu.json or applications-2gpu.json to DIRECTORY, and a table; what a former
# call with the same DIRECTORY has measured stays in them. SIMULATOR=N, LIST=1: as one_by_one.sh
# says; there programs start one by one, unless TOGETHER=1.
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
together=${TOGETHER:-$([ -z "$SIMULATOR$LIST" ] && echo 1)}
names=() pids=()
if [ -n "$together" ]; then
  turns=$(mktemp -d)
  trap 'kill "${pids[@]}" 2>/dev/null; rm -r "$turns"
    [ -n "$CUDA_MPS_PIPE_DIRECTORY" ] && echo quit | nvidia-cuda-mps-control' EXIT
fi
run() { # run NAME,WAY PROGRAM CASE=OPTIONS...
  local name
  name=${label:-}$(basename "$2" .py)
  set -- tests/gpu/cases.py "$cases" "$1" "$2" "${RUNS:-2}" "${@:3}"
  if [ -z "$together" ]; then
    LIMIT=${LIMIT:-70} one "$name" "$n" "$@"
    return
  fi
  TURN=$turns/$name timeout -k 5 "$(left)" mpirun --bind-to none -n "$n" python3 "$@" \
    >"$runs/$name-$n.log" 2>&1 &
  names+=("$name") pids+=($!)
}
left() { echo $((${BUDGET:-$budget} - SECONDS + began)); }
runs_still() { kill -0 "${pids[$1]}" 2>/dev/null; } # runs_still INDEX
is_ready() { [ -e "$turns/${names[$1]}-ready" ]; }
all_are_ready() {
  local i
  for i in "${!names[@]}"; do
    is_ready "$i" || ! runs_still "$i" || return 1
  done
}
take_turns() {
  local i until=$((SECONDS + ${COMPILING:-150})) from name
  while ! all_are_ready && ((SECONDS < until)); do sleep 0.5; done
  echo "compiled in $((SECONDS - began)) s"
  for i in "${!names[@]}"; do
    name=${names[$i]} from=$SECONDS
    if ! is_ready "$i" || (($(left) < 5)); then
      problem "$name on $n: $(is_ready "$i" && echo no time || echo failed while it compiled)"
      kill "${pids[$i]}" 2>/dev/null
      continue
    fi
    touch "$turns/$name-go"
    while runs_still "$i" && ((SECONDS - from < ${LIMIT:-70})); do sleep 0.2; done
    kill "${pids[$i]}" 2>/dev/null
    if wait "${pids[$i]}"; then
      echo "$name on $n: done in $((SECONDS - from)) s"
      solved "$name on $n"
    else
      problem "$name on $n: failed after $((SECONDS - from)) s"
      tail -n 15 "$runs/$name-$n.log"
    fi
  done
}
sizes() { # sizes OPTION VALUE...: a case of each
  local option=$1 value
  shift
  for value in "$@"; do echo "$value=$option $value"; done
}
# What the host prepares or checks for long comes last: a call that ends early has all others.
mapfile -t structs < <(for particles in 512 4096 32768; do for how in struct packed; do
  echo "$particles $how=--particles $particles --how $how"
done; done)
compare hacc "${structs[@]}"
compare workers "200=--items 200"
mapfile -t cells < <(sizes --cells 16 32 64)
compare particles "${cells[@]}"
mapfile -t squares < <(sizes --sizes 128 256 512 1024 2048)
compare stencil9 "${squares[@]}"
mapfile -t lengths < <(for length in 64 128 256; do
  echo "$length=--length $length --sweeps 200 --nishimori"
done)
compare spin_glass "${lengths[@]}"
mapfile -t classes < <(sizes --class S W A B)
compare cg "${classes[@]:0:3}"
mapfile -t halos < <(for points in 64 256; do for how in messages partitions; do
  echo "$points $how=--points $points --how $how"
done; done)
compare halo26 "${halos[@]}"
if [[ $wanted == *" halo26 "* ]]; then # beside the twin's, one call in place of 52
  whole=("64 neighbours=--points 64" "256 neighbours=--points 256")
  [ -n "$SIMULATOR" ] && whole=(neighbours=--small)
  run halo26,gmpi benchmarks/halo26_neighbours.py "${whole[@]}"
fi
mapfile -t plates < <(for size in 258 514 1026; do
  echo "$size=--size $size,$size --tolerance 0 --limit 1000"
done)
compare heat "${plates[@]}" "2050=--size 2050,2050 --tolerance 0 --limit 200"
mapfile -t matrices < <(for size in 1024 4096; do for layout in columns turned; do
  for how in messages alltoall; do
    echo "$size $layout $how=--size $size --layout $layout --how $how"
  done
done; done)
compare reshape "${matrices[@]}"
mapfile -t scales < <(sizes --scale 16 18 20)
compare bfs "${scales[@]}"
compare mg "${classes[@]}"
# Its matrix takes the host longest.
[ -z "$SIMULATOR" ] && label=B RUNS=1 compare cg "B=--class B"
[ -n "$LIST" ] && exit
[ -n "$together" ] && take_turns
python3 tests/gpu/applications_table.py "$out/applications-${gpus}gpu.json" "$n" "$cases" || bad=1
exit $bad
