#!/bin/bash
# himeno.sh DIRECTORY [check|plans|compare]: the Himeno benchmark on this machine's GPUs, with
# RANKS=2 ranks unless the environment says otherwise.
# check: both programs against the serial one. plans: times of the sweep's plans on one GPU.
# compare: both programs, S to XL, 1000 iterations. Without a word all three; JSON to DIRECTORY.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
set -o pipefail
out=${1:?usage: himeno.sh DIRECTORY [check|plans|compare]}
mkdir -p "$out"
n=${RANKS:-2}
bad=0
part() { [ -z "$2" ] || [ "$2" = "$1" ]; }

if part check "$2"; then
  for program in himeno himeno_cuda_mpi; do
    LIMIT=90 ranks $n examples/$program.py --size XS --decompose all --verify || bad=1
    LIMIT=50 ranks $n examples/$program.py --size S --verify || bad=1
  done
fi
if part plans "$2"; then
  LIMIT=70 ranks 1 tests/gpu/himeno_sweeps.py --sizes S,M,L --ranks 2,1,1 --budget 20 \
    --json "$out/sweeps.json" 2>&1 | tee "$out/sweeps.txt" || bad=1
fi
if part compare "$2"; then
  sizes="S M L XL"
  options="--size $sizes --decompose $n,1,1 --iterations 1000"
  LIMIT=80 ranks $n examples/himeno_cuda_mpi.py $options --repeat 3 --breakdown --json "$out/himeno-cuda-mpi.json" || bad=1
  LIMIT=80 ranks $n examples/himeno.py $options --repeat 3 --json "$out/himeno-gmpi.json" || bad=1
  LIMIT=70 ranks $n examples/himeno.py --size $sizes --decompose $n,1,1 --iterations 200 --breakdown \
    --json "$out/himeno-gmpi-breakdown.json" || bad=1
  python3 examples/_himeno_report.py "$out" || bad=1
fi
exit $bad
