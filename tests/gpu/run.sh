#!/bin/bash
# Runs the tests marked gpu on a machine with one GPU or more: run.sh [pytest arguments]
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
export NUMBA_ENABLE_CUDASIM=0
timeout "${LIMIT:-400}" python3 -m pytest -m gpu --durations=0 tests/test_gpu.py "$@"
