# Sourced by the scripts here: the environment of a GPU machine.
# One GPU: two ranks share it under MPS, so that both kernels run at the same time; not with the
# argument no-mps. With mps on any number of GPUs: for many programs side by side, whose kernels
# would otherwise take turns of milliseconds while each waits for its other rank.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PYTHONUNBUFFERED=1 CUDA_MODULE_LOADING=EAGER NUMBA_ENABLE_CUDASIM=0
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$PWD"
gpus=$(nvidia-smi -L | wc -l)
if [ -n "$CUDA_VISIBLE_DEVICES" ]; then # two jobs side by side, each with GPUs of its own
  IFS=, read -ra shown <<<"$CUDA_VISIBLE_DEVICES"
  gpus=${#shown[@]}
fi
if { [ "$gpus" = 1 ] && [ "$1" != no-mps ]; } || [ "$1" = mps ]; then
  export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mpslog
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-cuda-mps-control -d
  # What the daemon shows to its clients has numbers from 0 on.
  [ -n "$CUDA_VISIBLE_DEVICES" ] && export CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((gpus - 1)))
  trap 'echo quit | nvidia-cuda-mps-control' EXIT
fi
[ "$1" = no-mps ] && unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
# On all cores, so that the first program's time limit is not spent on it.
timeout 90 python3 -m gmpi cache fill
ranks() { # ranks N program arguments...
  local n=$1; shift
  timeout -k 5 "${LIMIT:-60}" mpirun --bind-to none -n "$n" python3 "$@"
}
