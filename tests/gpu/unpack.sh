#!/bin/bash
# unpack.sh DIRECTORY [FORMER]: unpacking short blocks on one GPU, this tree and, if its files are
# given, a former one; kernels that deal words out in other ways; what the profiler says memory
# moved. Tests on the device first. The table comes last, JSON goes to DIRECTORY. Two minutes.
# ODD=1 unpack.sh DIRECTORY [FORMER]: blocks of no whole words only, no profiler. One minute.
cd "$(dirname "$0")/../.." || exit 2
# As setup.sh, but no kernel here uses the library, which takes long to compile.
export PYTHONUNBUFFERED=1 CUDA_MODULE_LOADING=EAGER NUMBA_ENABLE_CUDASIM=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$PWD"
usage='usage: unpack.sh DIRECTORY [FORMER]'
mkdir -p "${1:?$usage}" && out=$(cd "$1" && pwd) || exit 2
bad=0
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
timeout 90 python3 -m pytest -q -x -p no:cacheprovider tests/test_pack_words.py tests/test_pack_tiles.py \
  -k "along or counts or unpack_of_any" || bad=1
files=("$out/unpack-1gpu.json")
timeout 120 python3 tests/gpu/unpack.py . ${ODD:+--odd} --variants --json "${files[0]}" || bad=1
if [ -n "$2" ]; then
  former=$(cd "$2" && pwd)
  (cd "$former" && PYTHONPATH=$former:$PYTHONPATH GMPI_COMMIT=${FORMER_COMMIT:-former} timeout 60 \
    python3 "$OLDPWD/tests/gpu/unpack.py" "$former" ${ODD:+--odd} --json "$out/unpack-former-1gpu.json") || bad=1
  [ -e "$out/unpack-former-1gpu.json" ] && files+=("$out/unpack-former-1gpu.json")
fi
ncu=$(command -v ncu || ls -d /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -1)
if [ -n "$ncu" ] && [ -z "$ODD" ]; then
  timeout 60 "$ncu" --csv --log-file "$raw/ncu.csv" --print-units base --clock-control none \
    --cache-control none --profile-from-start off \
    --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum \
    python3 tests/gpu/unpack.py . --once >/dev/null && files+=("$raw/ncu.csv")
fi
python3 tests/gpu/unpack_table.py "${files[@]}" || bad=1
exit $bad
