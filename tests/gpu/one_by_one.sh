# Sourced by scripts that run many programs one by one, each with a time limit, and all of them as far
# as BUDGET seconds go, with what is compiled before. Before it: out (a directory), budget.
# LIST=1: prints what would run, and runs nothing. SIMULATOR=N: in the simulator, as with N GPUs.
if [ -n "$LIST" ]; then
  gpus=${SIMULATOR:-${GPUS:-1}}
elif [ -n "$SIMULATOR" ]; then
  export NUMBA_ENABLE_CUDASIM=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
  gpus=$SIMULATOR
  ranks() { local n=$1; shift; timeout "${LIMIT:-60}" mpiexec -n "$n" python3 "$@"; }
else
  . tests/gpu/setup.sh
fi
export GMPI_WATCHDOG_S=${GMPI_WATCHDOG_S:-8}  # who hangs says why before its time is up
runs=$out/runs
[ -n "$LIST" ] || mkdir -p "$runs" || exit 2
bad=0
problem() { bad=1; echo "$*" | tee -a "$runs/problems"; }
solved() { # of a former call with the same DIRECTORY
  [ -e "$runs/problems" ] || return 0
  local left
  left=$(grep -vF "$1:" "$runs/problems")
  echo -n "${left:+$left$'\n'}" >"$runs/problems"
}
start() { # start N PROGRAM ARGUMENT...
  if [ "$1" = 0 ]; then
    shift
    timeout -k 5 "$LIMIT" python3 "$@"
  else
    ranks "$@"
  fi
}
one() { # one NAME N PROGRAM ARGUMENT...: its output to RUNS/NAME-N.log; N = 0: without mpiexec
  local name=$1 n=$2 log="$runs/$1-$2.log"
  shift 2
  if [ -n "$LIST" ]; then
    echo "$name $n $*"
    return
  fi
  local left=$((${BUDGET:-$budget} - SECONDS)) limit=${LIMIT:-60} from=$SECONDS
  if ((left < 5)); then
    problem "$name on $n: no time"
    return 1
  fi
  ((left < limit)) && limit=$left
  if LIMIT=$limit start "$n" "$@" >"$log" 2>&1; then
    echo "$name on $n: done in $((SECONDS - from)) s"
    solved "$name on $n"
  else
    problem "$name on $n: failed after $((SECONDS - from)) s"
    tail -n 30 "$log"
    return 1
  fi
}
