#!/bin/bash
# applications.sh DIRECTORY [NAME...]: the applications in examples/ and their twins in
# benchmarks/twins/ on this machine's GPUs, in turns, RUNS=3 times, with RANKS=2 ranks.
# Writes applications-1gpu.json or applications-2gpu.json to DIRECTORY, and a table.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
out=${1:?usage: applications.sh DIRECTORY [NAME...]}
shift
mkdir -p "$out"
n=${RANKS:-2}
bad=0
logs=$(mktemp -d)
wanted=" ${*:-bfs particles mg heat stencil9 halo26 reshape hacc spin_glass cg workers} "
# compare NAME CASE OPTION...: one line of the table.
compare() {
  local name=$1 case=$2
  shift 2
  [[ $wanted == *" $name "* ]] || return
  for ((run = 0; run < ${RUNS:-3}; run++)); do
    LIMIT=60 ranks "$n" "examples/$name.py" "$@" >"$logs/$name,$case,gmpi,$run" || bad=1
    local twin=benchmarks/twins/${name}_cuda_mpi.py
    [ -e "$twin" ] || continue
    LIMIT=60 ranks "$n" "$twin" "$@" >"$logs/$name,$case,cuda_mpi,$run" || bad=1
  done
}
for scale in 16 18 20 21; do
  compare bfs "$scale" --scale "$scale"
done
for cells in 16 32 64; do
  compare particles "$cells" --cells "$cells"
done
for size in 258 514 1026 2050; do
  compare heat "$size" --size "$size,$size" --tolerance 0 --limit 1000
done
for size in 128 256 512 1024 2048; do
  compare stencil9 "$size" --sizes "$size"
done
for points in 64 256; do
  for how in messages partitions; do
    compare halo26 "$points $how" --points "$points" --how "$how"
  done
done
if [[ $wanted == *" halo26 "* ]]; then # beside the twin's, one call in place of 52
  for points in 64 256; do
    for ((run = 0; run < ${RUNS:-3}; run++)); do
      LIMIT=60 ranks "$n" benchmarks/halo26_neighbours.py --points "$points" \
        >"$logs/halo26,$points neighbours,gmpi,$run" || bad=1
    done
  done
fi
for size in 1024 4096; do
  for layout in columns turned; do
    for how in messages alltoall; do
      compare reshape "$size $layout $how" --size "$size" --layout "$layout" --how "$how"
    done
  done
done
for particles in 512 4096 32768; do
  for how in struct packed; do
    compare hacc "$particles $how" --particles "$particles" --how "$how"
  done
done
for length in 64 128 256; do
  compare spin_glass "$length" --length "$length" --sweeps 200 --nishimori
done
for class in S W A B; do
  compare mg "$class" --class "$class"
done
for class in S W A; do
  compare cg "$class" --class "$class"
done
compare workers 200
python3 tests/gpu/applications_table.py "$out/applications-${gpus}gpu.json" "$n" "$logs" || bad=1
rm -r "$logs"
exit $bad
