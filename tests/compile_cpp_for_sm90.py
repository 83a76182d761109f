"""Links CUDA C++ with the device library for sm_90, without a GPU: JSON of what came out.

    compile_cpp_for_sm90.py [--all] DIRECTORY

examples/cpp/kernels.cu by NVRTC and nvJitLink; a kernel of Numba's that calls a function by
declare_device. ``--all``: also by "gmpi cpp" and nvcc, and a kernel that makes every call of every
scope.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from cuda.bindings import nvjitlink as linker
from numba import cuda

from device_lib.platform import assembler, library
from gmpi.cpp import link, symbols
from gmpi.cpp.table import Call, calls
from gmpi.launch import precompile

CC = (9, 0)
LIMIT = min(assembler.LIMITS)
CPP = Path(__file__).resolve().parent.parent / "examples" / "cpp"


def every_call() -> str:
    """A kernel that makes all calls, with arguments of the types that the header names."""
    lines = []
    for number, call in enumerate(calls().values()):
        values = ", ".join(_value(call, i) for i in range(len(call.parameters)))
        lines.append(f"    case {number}: keep(out, {call.name}({values})); break;")
    body = "\n".join(lines)
    return (
        '#include "gmpi.cuh"\n'
        "template <class T> __device__ void keep(char *out, T value) { *(T *)out = value; }\n"
        'extern "C" __global__ void all(gmpi_context ctx, char *out, int which, void *p,\n'
        "    long long *q, int *i, gmpi_status *s) {\n"
        f"    switch (which) {{\n{body}\n    }}\n}}\n"
    )


def _value(call: Call, index: int) -> str:
    kind = call.parameters[index].kind
    values = {"context": "ctx", "buffer": "p", "statuses": "s", "status": "*s", "int64": "q"}
    return values.get(kind, "i" if kind == "int32" else "q[1]")


def what_linked(source: str) -> dict[str, object]:
    program = link.compile_program(source, CC)
    code = link.link(program, CC, LIMIT)
    return {
        "kernels": program.kernels,
        "calls": program.calls,
        "parts": len(program.parts),
        "bytes": len(code),
        "makes_requests": program.makes_requests,
    }


def refused(source: str) -> str:
    try:
        what_linked(source)
    except link.UsageError as exc:
        return str(exc)
    return ""


def declared() -> dict[str, object]:
    """A kernel of Numba's that calls a function of the C ABI, linked as PTX."""
    symbol = "gmpi_c_comm_rank"
    rank = cuda.declare_device(symbol, "int64(int64, int64, int64, int64, int64)", abi="c")

    def kernel(out, a, b, c, d):  # type: ignore[no-untyped-def]
        out[0] = rank(a, b, c, d, 0)

    ptx, _ = cuda.compile(
        kernel, "void(int64[::1], int64, int64, int64, int64)", device=False, cc=CC, output="ptx",
        abi="numba",
    )  # fmt: skip
    pieces = [("ptx", "kernel", ptx.encode()), ("ptx", symbol, symbols.ptx(symbol, CC).encode())]
    pieces += [
        ("cubin", name, library.compile_object(name, CC, LIMIT))
        for name in symbols.parts([symbol], CC)
    ]
    code = link.nvjitlink(pieces, [f"-arch={assembler.architecture(CC)}"])
    return {"declared": re.findall(rf"\b{symbol}\b", ptx) != [], "bytes": len(code)}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return done


def functions(program: Path) -> list[str]:
    """Those of the GPU in a program of the host, by the names of the sections that they are in."""
    found = re.findall(rb"\.text\.(\w+)", program.read_bytes())
    return sorted({name.decode() for name in found})


def by_nvcc(folder: Path) -> dict[str, object]:
    """As the first lines of examples/cpp/nvcc_kernels.py say, which uses -dlto; and without it."""
    cc, source = ".".join(map(str, CC)), ["--for", CPP / "kernels.cu"]
    write = ["-m", "gmpi", "cpp", "-o", folder, "--cc", cc, "--registers", str(LIMIT), *source]
    written = json.loads(run(sys.executable, *write, "--json").stdout)
    build = [CPP / "nvcc_kernels.py", "--build", folder]
    said = run(sys.executable, *build, f"-maxrregcount={LIMIT}", "-Xnvlink", "-v").stderr
    used = re.findall(r"properties for '(\w+)':\s+.*used (\d+) registers", said)
    options = [option for option in written["options"] if option != "-dlto"]
    more = ["-std=c++17", "-Xcompiler", "-fPIC", "-shared", CPP / "launch.cu", written["library"]]
    run(written["compiler"], *options, *more, "-o", folder / "plain.so")
    return {
        "calls": written["calls"],
        "options": written["options"],
        "registers": {name: int(number) for name, number in used},
        "dlto": functions(folder / "libkernels.so"),
        "plain": functions(folder / "plain.so"),
    }


def main() -> None:
    folder = Path(sys.argv[-1])
    precompile.compile_without_gpu(CC)
    found: dict[str, object] = {"nvjitlink": linker.version()}
    found["cupy"] = what_linked((CPP / "kernels.cu").read_text())
    found["declared"] = declared()
    found["wrong"] = refused('#include "gmpi.cuh"\n__global__ void k() { GMPI_Isent(); }')
    found["missing"] = refused('extern "C" __device__ int f(); extern "C" __global__ void k(int *a)'
                               " { *a = f(); }")  # fmt: skip
    if "--all" in sys.argv:
        found["nvcc"] = by_nvcc(folder)
        found["all"] = what_linked(every_call())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
