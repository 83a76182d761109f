#!/bin/bash
# himeno_ncu.sh DIRECTORY: the Himeno sweep, launched and persistent, under Nsight Compute:
# registers, bandwidth, bytes in flight, caches. One GPU with half of the grid, no messages: the
# profiler stops a process between passes, which a proxy that polls does not survive. JSON to
# DIRECTORY, what ncu itself writes to DIRECTORY/ncu.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh no-mps  # which cannot be profiled
out=${1:?usage: himeno_ncu.sh DIRECTORY}
raw=$out/ncu
mkdir -p "$raw"
ncu=$(command -v ncu || ls -d /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -1)
if [ -z "$ncu" ]; then
  echo "error: ncu is not there: install Nsight Compute, or put it on PATH" >&2
  exit 2
fi

metrics=launch__registers_per_thread,launch__block_size,launch__grid_size
metrics+=,gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active
more=sm__warps_active.avg.per_cycle_active,l1tex__t_sector_hit_rate.pct,lts__t_sector_hit_rate.pct
more+=,smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio

profile() { # profile SECONDS METRICS. Clocks and caches as in a run without a profiler.
  rm -f "$raw/ncu.csv" "$raw/runs.json"
  timeout "$1" mpirun --bind-to none -n 1 "$ncu" --csv --log-file "$raw/ncu.csv" \
    --print-units base --clock-control none --cache-control none --replay-mode kernel \
    --kernel-name-base mangled --kernel-name 'regex:(launched|persistent)' --metrics "$2" \
    python3 tests/gpu/himeno_sweeps.py --once 100 --sizes "${SIZES:-S,M,L}" --ranks 2,1,1 \
    --json "$raw/runs.json"
}
# A metric that this version of ncu does not know costs all of them: then without the second group.
profile 70 "$metrics,$more" && python3 tests/gpu/himeno_ncu.py "$out" && exit
grep '^==' "$raw/ncu.csv" | grep -v PROF | tail -5 >&2
echo "# again, with fewer metrics" >&2
profile 45 "$metrics" && python3 tests/gpu/himeno_ncu.py "$out" && exit
grep '^==' "$raw/ncu.csv" | grep -v PROF | tail -5 >&2
exit 1
