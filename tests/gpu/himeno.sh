#!/bin/bash
# himeno.sh DIRECTORY [PART...]: the Himeno benchmark on this machine's GPUs, with RANKS=2 ranks
# unless the environment says otherwise. JSON and plots to DIRECTORY. Parts, all but the last
# without a word:
# check      both programs against the serial one
# plans      times of the sweep's plans on one GPU
# compare    both programs, S to XL, 1000 iterations
# along_j    both programs cut along j alone, S to L, 500 iterations: to DIRECTORY/himeno_j
# example    examples/himeno.py and himeno_partitioned.py, S to XL, as many: beside the others in
#            one table
# breakdown  where the time of an iteration goes, S to XL
# latency    size S with faces in 1, 2, 4 messages and 1 to 7 multiprocessors that communicate
# together   size L with one and with two iterations in a pass over memory
# scaling    both programs on 1, 2, 4 ranks: one a GPU, or with one GPU all of them on it
# ncu        the sweep in Nsight Compute (himeno_ncu.sh)
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
set -o pipefail
out=${1:?usage: himeno.sh DIRECTORY [check|plans|compare|along_j|example|breakdown|latency|together|scaling|ncu]...}
shift
mkdir -p "$out"
n=${RANKS:-2}
bad=0
wanted=" ${*:-check plans compare along_j example breakdown latency together scaling} "
part() { [[ $wanted == *" $1 "* ]]; }
export GMPI_WATCHDOG_S=${GMPI_WATCHDOG_S:-8}  # who hangs says why before its time is up
gmpi=benchmarks/himeno/himeno_tuned.py
cuda_mpi=benchmarks/himeno/himeno_cuda_mpi.py
example=examples/himeno.py

if part check; then
  for program in $gmpi $cuda_mpi; do
    LIMIT=90 ranks $n $program --size XS --decompose all --verify || bad=1
    LIMIT=50 ranks $n $program --size S --verify || bad=1
  done
  LIMIT=60 ranks $n $gmpi --size XS S L --decompose $n,1,1 --together 2 --verify || bad=1
  for size in XS S M; do
    LIMIT=60 ranks $n $example --size $size --verify || bad=1
  done
fi
if part plans; then
  LIMIT=100 ranks 1 tests/gpu/himeno_sweeps.py --sizes S,M,L --ranks 2,1,1 --budget 30 \
    --json "$out/sweeps.json" 2>&1 | tee "$out/sweeps.txt" || bad=1
fi
if part compare; then
  options="--size S M L XL --decompose $n,1,1 --iterations 1000 --repeat 3"
  LIMIT=80 ranks $n $cuda_mpi $options --breakdown --json "$out/himeno-cuda-mpi.json" || bad=1
  LIMIT=80 ranks $n $gmpi $options --json "$out/himeno-gmpi.json" || bad=1
fi
if part along_j; then
  mkdir -p "$out/himeno_j"
  options="--size S M L --decompose 1,$n,1 --iterations 500 --repeat 3"
  LIMIT=80 ranks $n $gmpi $options --json "$out/himeno_j/himeno-gmpi.json" || bad=1
  LIMIT=60 ranks $n $cuda_mpi $options --json "$out/himeno_j/himeno-cuda-mpi.json" || bad=1
fi
if part example; then
  for program in example partitioned; do
    logs=$(mktemp -d)
    path=examples/himeno$([ $program = example ] || echo _$program).py
    for size in S M L XL; do
      for run in 1 2 3; do  # the rehearsal of the others is 3 iterations, from where they go on
        LIMIT=60 ranks $n $path --size $size --iterations 1003 >"$logs/$size-$run" || bad=1
      done
    done
    python3 tests/gpu/himeno_example.py "$out" "$logs" $n $program || bad=1
    rm -r "$logs"
  done
fi
if part breakdown; then
  for sizes in "S M" "L XL"; do  # so that what happens to some does not cost the others
    LIMIT=45 ranks $n $gmpi --size $sizes --decompose $n,1,1 --iterations 200 --breakdown \
      --json "$out/himeno-gmpi-breakdown-${sizes/ /-}.json" || bad=1
  done
fi
if part latency; then
  options="--size S --decompose $n,1,1 --iterations 1000"
  LIMIT=70 ranks $n $gmpi $options --messages 1 2 4 --communicating 1 2 4 7 --repeat 3 \
    --json "$out/messages.json" | grep -a '^# \|^cpu' || bad=1
  LIMIT=30 ranks $n $gmpi $options --messages 1 --communicating 2 7 --breakdown \
    --json "$out/messages-breakdown.json" | grep -a '^# \|^cpu' || bad=1
fi
if part together; then
  LIMIT=60 ranks $n $gmpi --size L --decompose $n,1,1 --iterations 1000 --repeat 3 \
    --together 1 2 --json "$out/together.json" | grep -a '^# \|^cpu\|^error' || bad=1
fi
if part scaling; then
  for m in 1 2 4; do
    [ "$gpus" != 1 ] && [ $m -gt "$gpus" ] && continue
    # Strong: the same grid. Weak: the same part of it for every rank.
    weak="$((128 * m)),128,256 $((256 * m)),256,512"
    sizes=$([ $m = 1 ] && echo M L || echo M L $weak)  # on one rank they are the same
    for program in $gmpi $cuda_mpi; do
      LIMIT=60 ranks $m $program --size $sizes --decompose $m,1,1 --iterations 1000 --repeat 3 \
        --json "$out/scaling-$(basename ${program/_tuned} .py)-$m.json" | grep -a '^# \|^cpu' || bad=1
    done
  done
fi
part ncu && { tests/gpu/himeno_ncu.sh "$out" || bad=1; }
if part compare || part breakdown || part latency || part scaling; then
  python3 benchmarks/himeno/_himeno_report.py "$out" || bad=1
fi
exit $bad
