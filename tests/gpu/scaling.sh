#!/bin/bash
# scaling.sh DIRECTORY [COUNT...]: 1, 2, 4 and 8 ranks, a GPU for each, as far as there are so many
# GPUs; with one GPU, 1 and 2 ranks share it. PARTS, in this order, names what runs (all of it):
#   right         random programs, and examples/himeno.py against the serial program. What follows
#                 runs on the numbers of ranks on which these were right.
#   rates         8 B and 64 KiB between all pairs, messages of all ranks at once, barriers,
#                 collectives of 8 B on both roads, and of 64 MiB by all blocks of a grid
#   applications  halo26, BFS and the spin glass
#   himeno        S to XL in 1-D, 2-D and 3-D cuts, strong and weak, with GMPI and with CUDA + MPI
# Each program has a time limit, all together BUDGET=550 seconds. On 8 GPUs that is two calls:
# PARTS="right rates applications", then PARTS=himeno with the same DIRECTORY.
# Writes scaling.json, and a picture of each measurement, to DIRECTORY. SIMULATOR=N, LIST=1: as
# one_by_one.sh says; in the simulator all sizes are tiny.
cd "$(dirname "$0")/../.." || exit 2
out=${1:?usage: scaling.sh DIRECTORY [COUNT...]}
shift
budget=550
. tests/gpu/one_by_one.sh
if [ -n "$SIMULATOR" ]; then
  seeds=0:1 verify="--size 6,7,8" long="-m 81920" iterations=2 strong="16,8,8" each="4,5,6"
  halo=(small="--small --how messages") bfs=(small=--small) spins=(small=--small)
else
  seeds=0:3 verify="--size S" long="-m 67108864" iterations=400
  strong="64,64,128 128,128,256 256,256,512 512,512,1024" each=$strong # S M L XL
  halo=("256 messages=--points 256 --how messages" "256 partitions=--points 256 --how partitions")
  bfs=("18=--scale 18 --roots 8" "20=--scale 20 --roots 4")
  spins=("128=--length 128 --sweeps 1000" "256=--length 256 --sweeps 200")
fi
most=$gpus
[ "$gpus" = 1 ] && most=2 # they share it
counts=""
for n in ${*:-1 2 4 8}; do
  ((n > most)) && { echo "$n ranks: only $gpus GPUs, not run"; continue; }
  counts+=" $n"
done
wanted=" ${PARTS:-right rates applications himeno} "
application() { # application N NAME CASE...
  local n=$1 name=$2
  shift 2
  one "$name" "$n" tests/gpu/cases.py "$runs/applications-$n" "$name,gmpi" "examples/$name.py" 1 "$@"
}
cut_of() { # cut_of N: 1-D, 2-D and 3-D cuts of so many ranks
  echo "$1,1,1"
  (($1 > 2)) && echo "$(($1 / 2)),2,1"
  (($1 > 7)) && echo "$(($1 / 4)),2,2"
}
himeno() { # himeno N: one grid for all numbers of ranks, then one that grows with them
  local n=$1 cut program size a b c i j k
  for cut in $(cut_of "$n"); do
    IFS=, read -r a b c <<<"$cut"
    local sizes=$strong
    for size in $each; do
      IFS=, read -r i j k <<<"$size"
      size=$((a * i)),$((b * j)),$((c * k))
      [[ " $sizes " == *" $size "* ]] || sizes+=" $size"
    done
    for program in himeno_tuned himeno_cuda_mpi; do
      LIMIT=${LIMIT:-100} one "$program,$cut" "$n" "benchmarks/himeno/$program.py" --size $sizes \
        --decompose "$cut" --iterations $iterations --repeat 3 --json "$runs/$program-$n-$cut.json"
    done
  done
}
if [[ $wanted == *" right "* ]]; then
  right=""
  for n in $counts; do
    # The first one compiles what all others use.
    LIMIT=${LIMIT:-120} one random_programs "$n" tests/ranks/random_programs.py --seeds=$seeds &&
      one verify "$n" examples/himeno.py $verify --verify && right+=" $n"
  done
  counts=$right
fi
for n in $counts; do
  [[ $wanted == *" rates "* ]] || break
  one all_ranks "$n" benchmarks/all_ranks.py --json "$runs/all_ranks-$n.json"
  LIMIT=${LIMIT:-100} one collectives "$n" benchmarks/collectives.py -m 8 \
    --json "$runs/collectives-$n.json"
  [ "$n" = 1 ] || LIMIT=${LIMIT:-100} one collectives_long "$n" benchmarks/collectives.py --long \
    $long --json "$runs/collectives_long-$n.json"
done
for n in $counts; do
  [[ $wanted == *" applications "* ]] || break
  [ -n "$LIST" ] || mkdir -p "$runs/applications-$n"
  application "$n" halo26 "${halo[@]}"
  application "$n" bfs "${bfs[@]}"
  application "$n" spin_glass "${spins[@]}"
done
for n in $counts; do
  [[ $wanted == *" himeno "* ]] && himeno "$n"
done
[ -n "$LIST" ] && exit
python3 tests/gpu/scaling_table.py "$out" "$runs" || bad=1
python3 tests/gpu/scaling_figures.py "$out/scaling.json" "$out" || bad=1
exit $bad
