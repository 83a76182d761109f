#!/bin/bash
# scaling.sh DIRECTORY [COUNT...]: 1, 2, 4 and 8 ranks, a GPU for each, as far as there are so many
# GPUs; with one GPU, 1 and 2 ranks share it. Right results first: random programs, and
# examples/himeno.py against the serial program. Then pairs, rates, collectives, Himeno strong and
# weak. Each program has a time limit, all together BUDGET=540 seconds. Writes scaling.json and
# scaling.svg to DIRECTORY. Without a GPU, in the simulator with small sizes: SIMULATOR=1.
cd "$(dirname "$0")/../.." || exit 2
usage='usage: scaling.sh DIRECTORY [COUNT...]'
out=${1:?$usage}
shift
mkdir -p "$out" || exit 2
if [ -n "$SIMULATOR" ]; then
  export NUMBA_ENABLE_CUDASIM=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
  gpus=${SIMULATOR}
  ranks() { local n=$1; shift; timeout "${LIMIT:-60}" mpiexec -n "$n" python3 "$@"; }
  seeds=0:1 verify="--size 6,7,8" sizes="10,9,8" many=2 collective="-m 8 1024"
else
  . tests/gpu/setup.sh
  seeds=0:3 verify="--size S" sizes="S M L XL" many=1000 collective="-m 8 67108864"
fi
most=$gpus
[ "$gpus" = 1 ] && most=2 # they share it
export GMPI_WATCHDOG_S=${GMPI_WATCHDOG_S:-8}  # who hangs says why before its time is up
runs=$(mktemp -d)
began=$SECONDS bad=0
one() { # one NAME N PROGRAM ARGUMENT...: as far as the budget goes; its output to NAME-N.log
  local name=$1 n=$2 log="$runs/$1-$2.log"
  shift 2
  local left=$((${BUDGET:-540} - SECONDS + began))
  if ((left < 5)); then
    echo "no time for $name on $n" | tee -a "$runs/problems"
    return 1
  fi
  local limit=${LIMIT:-60}
  ((left < limit)) && limit=$left
  if LIMIT=$limit ranks "$n" "$@" >"$log" 2>&1; then
    echo "$name on $n: done"
  else
    bad=1
    echo "$name on $n: failed" | tee -a "$runs/problems"
    tail -n 30 "$log"
    return 1
  fi
}
counts=""
for n in ${*:-1 2 4 8}; do
  ((n > most)) && { echo "$n ranks: only $gpus GPUs, not run"; continue; }
  counts+=" $n"
done
right=""
for n in $counts; do # right results first
  one random_programs "$n" tests/ranks/random_programs.py --seeds=$seeds &&
    one verify "$n" examples/himeno.py $verify --verify && right+=" $n"
done
for n in $right; do
  one all_ranks "$n" benchmarks/all_ranks.py $collective --json "$runs/all_ranks-$n.json"
  one collectives "$n" benchmarks/collectives.py $collective --roads direct proxied \
    --json "$runs/collectives-$n.json"
done
for n in $right; do
  # Strong: the same grid on all counts, cut along i, in both, in all. Weak: to each what one has of L.
  cuts=$n,1,1
  ((n > 2)) && cuts+=" $((n / 2)),2,1"
  ((n > 7)) && cuts+=" $((n / 4)),2,2"
  for cut in $cuts; do
    one "himeno,$cut" "$n" benchmarks/himeno/himeno_tuned.py --size $sizes --decompose "$cut" \
      --iterations $many --repeat 3 --json "$runs/himeno-$n-$cut.json"
  done
  weak=$([ -n "$SIMULATOR" ] && echo "$((4 * n + 2)),5,8" || echo "$((256 * n)),256,512")
  one weak "$n" benchmarks/himeno/himeno_tuned.py --size "$weak" --decompose "$n,1,1" \
    --iterations $many --repeat 3 --json "$runs/weak-$n.json"
done
python3 tests/gpu/scaling_table.py "$out" "$runs" || bad=1
rm -r "$runs"
exit $bad
