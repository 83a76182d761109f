#!/bin/bash
# Errors, faults and hangs on a machine with GPUs: faults.sh [DIRECTORY] [PART...]
# PART: faults dying processes hangs debug hazards sanitizer cost soak; all by default, the soak last.
# One GPU: two ranks share it under MPS, and a kernel that faults takes the other rank's along; MPS
# is started anew after it. Every program has a time limit; JSON goes to DIRECTORY, and a table of
# what passed is printed last.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
out=${1:-/tmp/faults}; shift
parts=${*:-faults debug hangs hazards cost sanitizer processes dying soak}
mkdir -p "$out"
results=$out/results.txt
: > "$results"
note() { # note NAME command...
  local name=$1 began=$SECONDS; shift
  "$@" > "$out/$name.log" 2>&1
  local status=$?
  printf '%-28s %s  %4d s\n' "$name" "$([ $status = 0 ] && echo passed || echo "FAILED ($status)")" \
    $((SECONDS - began)) | tee -a "$results"
}
restart_mps() {
  [ "$gpus" = 1 ] || return 0
  echo quit | timeout 20 nvidia-cuda-mps-control; sleep 2; nvidia-cuda-mps-control -d
}
sanitized() { # sanitized TOOL program arguments...
  local tool=$1; shift
  # Numba's cached arrays and our stream outlive the program; what counts are accesses.
  TEST_LIMIT_S=280 timeout "${LIMIT:-300}" mpirun --bind-to none -n 2 \
    compute-sanitizer --tool "$tool" --error-exitcode 9 --launch-timeout 120 python3 "$@"
}
for part in $parts; do
  case $part in
  faults) for op in send recv wait allreduce; do
      export TEST_LIMIT_S=120 FAULT_SECONDS=${FAULT_SECONDS:-3}
      LIMIT=120 note "faults-$op" ranks 2 tests/ranks/faults.py "$op"
    done
    FAULT_SECONDS=10 LIMIT=120 note ring-full-10s ranks 2 tests/ranks/faults.py ring_full
    TEST_LIMIT_S=120 LIMIT=120 note faults-direct ranks 2 tests/ranks/direct_faults.py
    TEST_LIMIT_S=60 LIMIT=60 note unreceived ranks 2 tests/ranks/unreceived.py ;;
  debug) for program in debug "debug --direct" debug_direct; do
      read -ra words <<<"$program"
      TEST_LIMIT_S=100 LIMIT=100 note "${program// /}" ranks 2 "tests/ranks/${words[0]}.py" "${words[@]:1}"
    done ;;
  hangs) TEST_LIMIT_S=200 LIMIT=200 note hangs ranks 3 tests/ranks/hangs.py
    TEST_LIMIT_S=200 LIMIT=200 note hangs-direct ranks 3 tests/ranks/hangs.py --direct ;;
  hazards) note hazards timeout 400 python3 tests/gpu/hazards.py --json "$out/hazards.json"
    cat "$out/hazards.log" ;;
  cost) LIMIT=60 note cost ranks 2 tests/gpu/watchdog_cost.py --json "$out/watchdog_cost.json"; cat "$out/cost.log"
    GMPI_DEBUG=1 LIMIT=60 note cost-debug ranks 2 benchmarks/pingpong.py -m 8:8 \
      --no-conventional --json "$out/pingpong-debug.json" ;;
  sanitizer) for tool in memcheck racecheck; do
      for program in point_to_point collectives arrays datatypes "point_to_point --direct" \
        direct_collectives "partitioned --some" "grid --direct"; do
        read -ra words <<<"$program"
        note "$tool-${program// /}" sanitized "$tool" "tests/ranks/${words[0]}.py" "${words[@]:1}"
      done
      # One rank: it sends to itself.
      note "$tool-soak-direct" timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        --launch-timeout 60 python3 tests/gpu/soak.py --direct --seconds 20 --blocks 16
      note "$tool-himeno" sanitized "$tool" benchmarks/himeno/himeno_tuned.py --size XS --decompose 2,1,1 \
        --together 1 --verify
    done
    # What is known: racecheck reports the notes of warps that call by themselves
    # (device_lib/direct/own.py), and the last command's number in a grid, which one lane stores
    # when all have read it, behind a __syncwarp or a shuffle. memcheck does not seem to know memory
    # that the proxy has mapped while the kernel runs: it takes the first store to a peer's array in
    # partitioned for one out of bounds, and names the allocation in which its address lies. Under
    # MPS that ends the programs beside it.
    # Not racecheck: behind a __syncwarp one lane says for all that they have read their
    # coefficients, which racecheck does not seem to follow: it reports the copy that comes next,
    # whether that is said with an atomic operation or an mbarrier.
    note memcheck-himeno-together sanitized memcheck benchmarks/himeno/himeno_tuned.py --size XS \
      --decompose 2,1,1 --together 2 --verify ;;
  processes) # SIGTERM, children, many contexts
    note processes env NUMBA_ENABLE_CUDASIM=0 timeout 300 python3 -m pytest -q tests/test_process.py
    restart_mps ;;
  dying) for op in recv allreduce; do
      export TEST_LIMIT_S=60
      LIMIT=60 note "kernel-faults-$op" ranks 2 tests/ranks/faults.py "kernel_faults.$op"
      grep -h "^ok kernel_faults" "$out/kernel-faults-$op.log"
      restart_mps
    done
    # The launcher ends the job: a status that is not 0, and no rank that is still there.
    note peer-killed sh -c "! timeout 60 mpirun --bind-to none -n 2 python3 tests/ranks/faults.py \
      peer_killed.recv > $out/peer.log 2>&1 && ! grep 'rank 1 lives' $out/peer.log"
    restart_mps ;;
  soak) for program in soak "soak --direct" "soak --direct --flood" soak_collectives soak_grid; do
      read -ra words <<<"$program"
      name=${program// /}
      LIMIT=$((${SOAK_S:-240} + 90)) note "$name" ranks 2 "tests/gpu/${words[0]}.py" \
        "${words[@]:1}" --seconds "${SOAK_S:-240}" --json "$out/$name.json"
      tail -2 "$out/$name.log"
    done ;;
  *) echo "no part $part"; exit 2 ;;
  esac
done
echo; cat "$results"
! grep -q FAILED "$results"
