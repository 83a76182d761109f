#!/bin/bash
# What users would pick instead, on two GPUs: peers.sh DIRECTORY [WHEELS]. Writes peers-2gpu.json.
# NVSHMEM, with nvcc and the package nvidia-nvshmem-cu13. MPI with device pointers: Open MPI whose UCX
# knows CUDA; where it does not, with the wheel libucx-cu13 in WHEELS (default .ucx), fetched by
#   python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 \
#     --platform manylinux_2_28_x86_64 -d .ucx libucx-cu13
usage='usage: peers.sh DIRECTORY [WHEELS]'
mkdir -p "${1:?$usage}" && out=$(cd "$1" && pwd) || exit 2
wheels=$(realpath -m "${2:-.ucx}")
here=$(cd "$(dirname "$0")" && pwd)
[ "$(nvidia-smi -L | wc -l)" -ge 2 ] || { echo "peers.sh needs two GPUs"; exit 0; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

package() { # package NAME: the folder of a Python package
  python3 -c "import importlib.util as u; print(list(u.find_spec('$1').submodule_search_locations)[0])" 2>/dev/null
}
# Without NVLink multicast, and over NVLink alone.
export NVSHMEM_DISABLE_NVLS=1 NVSHMEM_REMOTE_TRANSPORT=none
nvshmem=$(package nvidia.nvshmem)
if [ -e "$nvshmem/include/nvshmem.h" ]; then
  library=$(basename "$(ls "$nvshmem"/lib/libnvshmem_host.so* | head -1)")
  nvcc -O3 -std=c++17 -arch=sm_90 -rdc=true -I"$nvshmem/include" -o nvshmem "$here/nvshmem.cu" \
    -L"$nvshmem/lib" -l:"$library" -lnvshmem_device -lcuda &&
    (export LD_LIBRARY_PATH="$nvshmem/lib:$LD_LIBRARY_PATH"
      timeout 60 ./nvshmem 1 "$work/meet" & timeout 60 ./nvshmem 0 "$work/meet"; wait) >nvshmem.txt 2>&1
  cat nvshmem.txt
else
  echo "no NVSHMEM here: nvidia-nvshmem-cu13 is not installed"
fi

options=(--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any)
wheel=$(ls "$wheels"/libucx_cu13*.whl 2>/dev/null | head -1)
if [ -n "$wheel" ]; then
  python3 -m zipfile -e "$wheel" ucx
  ucx=$(dirname "$(find "$work/ucx" -name 'libucp.so*' | head -1)")
  cudart=$(find "$(package nvidia)" /usr/local/cuda* -name 'libcudart.so.13*' -printf '%h:' 2>/dev/null)
  export LD_LIBRARY_PATH="$ucx:$cudart$LD_LIBRARY_PATH"
  options+=(-x LD_LIBRARY_PATH -x UCX_MODULE_DIR="$ucx/ucx")
else
  echo "no wheel libucx-cu13 in $wheels: with the UCX that is installed"
fi
timeout 120 mpirun --bind-to none "${options[@]}" -n 2 python3 "$here/device_pointers.py" >device.txt 2>&1
cat device.txt
touch nvshmem.txt device.txt
python3 "$here/peers.py" "$out/peers-2gpu.json" nvshmem.txt device.txt
