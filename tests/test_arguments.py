"""Arguments that no call can take: one line with the cure, from values and from Numba's types."""

from __future__ import annotations

import inspect
import json
import sys

import launcher
import numpy as np
import pytest
from mpi4py import MPI

import gmpi
from device_lib.api.arguments import check, kind_of_value, numbered
from device_lib.platform.context import DeviceContext
from gmpi.contract.constants import DATATYPE_NAMES, OPERATIONS_REDUCE, number_of

CTX = DeviceContext(0, 0, 0, 0)
A = np.zeros(4, np.float32)
ROW = gmpi.FLOAT, 0, 7, gmpi.COMM_WORLD

#: arguments of GMPI_Send -> what is said
SENDS = {
    "MPI.FLOAT": ((CTX, A, 4, gmpi.FLOAT, MPI.FLOAT, 7, 0), "dest is mpi4py's MPI.F", "an integer"),
    "of Fortran": ((CTX, A, 4, MPI.REAL4, 0, 7, 0), "datatype is mpi4py's MPI.REAL4", "g.commit("),
    "MPI.SUM": ((CTX, A, 4, MPI.SUM, 0, 7, 0), "datatype is mpi4py's MPI.SUM", "gmpi.FLOAT"),
    "AUTO, no array": ((CTX, 4096, 4, gmpi.AUTO, 0, 7, 0), "datatype is gmpi.AUTO", "is an array"),
    "AUTO, a record": (
        (CTX, np.zeros(4, "S3,f4"), 4, gmpi.AUTO, 0, 7, 0), "datatype is gmpi.AUTO", "an array, ",
    ),
    "a derived datatype": (
        (CTX, A, 4, MPI.FLOAT.Create_contiguous(2), 0, 7, 0), "datatype is", "g.commit(datatype)",
    ),
    "np.float32": ((CTX, A, 4, np.float32, 0, 7, 0), "NumPy's float32", "pass gmpi.FLOAT"),
    "a.dtype": ((CTX, A, 4, A.dtype, 0, 7, 0), "NumPy's float32", "pass gmpi.FLOAT"),
    "a name": ((CTX, A, 4, "float", 0, 7, 0), "datatype is a str", "such as gmpi.FLOAT"),
    "a communicator": ((CTX, A, 4, *ROW[:3], MPI.COMM_WORLD), "Intracomm", "h = g.comm(comm)"),
    "no ctx": ((A, 4, *ROW), "ctx is an array", "ctx comes first"),
    "the module": ((gmpi, A, 4, *ROW), "ctx is the module gmpi", "g.device"),
    "a float": ((CTX, A, 4.0, *ROW), "count is 4.0, a float", "int()"),
    "a list": ((CTX, [1, 2], 2, *ROW), "buf is a list", "an array in device memory"),
    "too few": ((CTX, A, 4, *ROW[:3]), "missing a required argument: 'comm'", "GMPI_Send(ctx, "),
    "too many": ((CTX, A, 4, *ROW, 0), "too many positional arguments", "GMPI_Send(ctx, buf, "),
}  # fmt: skip


@pytest.mark.parametrize("case", SENDS)
def test_what_a_value_is_told(case: str) -> None:
    given, *words = SENDS[case]
    with pytest.raises(gmpi.UsageError) as caught:
        check("GMPI_Send", inspect.signature(gmpi.GMPI_Send), given, {}, kind_of_value)
    text = str(caught.value)
    assert text.startswith("GMPI_Send: ") and "\n" not in text
    assert all(word in text for word in words), text


def test_an_operation_of_mpi4py() -> None:
    signature = inspect.signature(gmpi.GMPI_Allreduce)
    with pytest.raises(gmpi.UsageError, match=r"op is mpi4py's .*n = g.op\(op\)"):
        given = CTX, A, A, 4, gmpi.FLOAT, MPI.OP_NULL, 0
        check("GMPI_Allreduce", signature, given, {}, kind_of_value)
    with pytest.raises(gmpi.UsageError, match="op is .*, allowed is a constant .* as gmpi.SUM"):
        check("GMPI_Allreduce", signature, (*given[:5], np.sum, 0), {}, kind_of_value)


def test_numbers_in_place_of_constants_of_mpi4py_and_of_auto() -> None:
    """Predefined ones only; those of the simulator: values."""
    signature = inspect.signature(gmpi.GMPI_Allreduce)
    doubles = np.zeros(4)
    given = CTX, gmpi.IN_PLACE, doubles, 4, gmpi.AUTO, MPI.MAX
    check("GMPI_Allreduce", signature, given, {"comm": 0}, kind_of_value)
    found = numbered(signature, given, {"comm": 0}, kind_of_value, int)
    assert found == ((*given[:4], gmpi.DOUBLE, gmpi.MAX), {"comm": 0})
    signature = inspect.signature(gmpi.GMPI_Gather)
    given = CTX, A, 4, gmpi.AUTO, doubles, 4, gmpi.AUTO, 0, 0
    numbers, _ = numbered(signature, given, {}, kind_of_value, int)
    assert (numbers[3], numbers[6]) == (gmpi.FLOAT, gmpi.DOUBLE)
    for number, name in DATATYPE_NAMES.items():
        same = number_of(getattr(MPI, name))
        assert same == number or getattr(MPI, name) == getattr(MPI, DATATYPE_NAMES[same])
    assert [number_of(op) for _, op in OPERATIONS_REDUCE] == list(range(len(OPERATIONS_REDUCE)))


def test_what_is_right_is_let_through() -> None:
    send, waitall = inspect.signature(gmpi.GMPI_Send), inspect.signature(gmpi.GMPI_Waitall)
    check("GMPI_Send", send, (CTX, A, np.int32(4), *ROW), {}, kind_of_value)
    named = dict(zip(("datatype", "dest", "tag", "comm"), ROW))
    check("GMPI_Send", send, (CTX, A.ctypes.data, 4), named, kind_of_value)
    for requests in ((1, 2), np.zeros(2, np.int64)):
        check("GMPI_Waitall", waitall, (CTX, 2, requests), {}, kind_of_value)
        check("GMPI_Waitall", waitall, (CTX, 2, requests, None), {}, kind_of_value)


@pytest.mark.parametrize("name", ["Startall", "Testall", "Testall_warp", "Testsome", "Waitsome"])
def test_handles_in_one_piece(name: str) -> None:
    call, handles = getattr(gmpi, f"GMPI_{name}"), np.zeros(8, np.int64)
    signature = inspect.signature(call)
    others = [handles] * (len(signature.parameters) - 3 - ("statuses" in signature.parameters))
    check(call.__name__, signature, (CTX, 2, handles[1:3], *others), {}, kind_of_value)
    words = f"GMPI_{name}: requests is a strided view, allowed is an array in one piece"
    with pytest.raises(gmpi.UsageError, match=words):
        check(call.__name__, signature, (CTX, 2, handles[::2], *others), {}, kind_of_value)
    waitall = inspect.signature(gmpi.GMPI_Waitall)
    check("GMPI_Waitall", waitall, (CTX, 2, handles[::2]), {}, kind_of_value)


#: The same written in kernels, typed for a GPU: (line of the kernel, words)
KERNELS = [
    ("gmpi.GMPI_Send(ctx, a, 4, MPI.REAL4, 0, 7, 0)", "datatype is mpi4py's MPI.REAL4", "g.commit"),
    ("gmpi.GMPI_Send(ctx, 4096, 4, gmpi.AUTO, 0, 7, 0)", "datatype is gmpi.AUTO", "is an array"),
    ("gmpi.GMPI_Send(ctx, a, 4, np.float32, 0, 7, 0)", "datatype is NumPy's float32", "gmpi.FLOAT"),
    ("gmpi.GMPI_Send(ctx, a, 4, gmpi.FLOAT, 0, 7, comm)", "comm is mpi4py's", "h = g.comm(comm)"),
    ("gmpi.GMPI_Send_warp(a, 4, gmpi.FLOAT, 0, 7, 0)", "GMPI_Send_warp: ctx is an array", "g.dev"),
    ("gmpi.GMPI_Send(gmpi, a, 4, gmpi.FLOAT, 0, 7, 0)", "ctx is the module gmpi", "g.device"),
    ("gmpi.GMPI_Testall(ctx, 2, a[::2])", "requests is a strided view", "array in one piece"),
    ("gmpi.GMPI_Send(ctx, a, 4, gmpi.FLOAT, 0, 7)", "missing a required argument: 'comm'", "comm)"),
    ("gmpi.GMPI_Send(ctx, a, 4.0, gmpi.FLOAT, 0, 7, 0)", "count is a float64", "int()"),
    ("gmpi.GMPI_Allreduce(ctx, a, a, 4, gmpi.FLOAT, MPI.OP_NULL, 0)", "op is mpi4py's", "g.op(op)"),
]  # fmt: skip

TYPED = """
import json, sys
import numpy as np
from mpi4py import MPI
from numba import cuda, types
from numba.cuda.typing.typeof import typeof
import gmpi
from gmpi.launch import precompile
precompile.compile_without_gpu((9, 0))
from device_lib.platform.context import DeviceContext
comm = MPI.COMM_WORLD
signature = types.void(typeof(DeviceContext(0, 0, 0, 0)), types.float32[::1])
for line in json.loads(sys.argv[1]):
    names = dict(globals())
    exec(f"def kernel(ctx, a):\\n    {line}", names)
    try:
        cuda.compile(names["kernel"], signature, device=False, cc=(9, 0), output="ptx", abi="numba")
    except gmpi.UsageError as exc:
        print(json.dumps(str(exc)))
for value in (MPI.FLOAT, comm):
    try:
        cuda.jit(lambda a: None).typeof_pyval(value)
    except gmpi.UsageError as exc:
        print(json.dumps(str(exc)))

import inspect
from device_lib.api.arguments_cuda import checked

@cuda.jit(device=True)
def number(ctx, buf, count, datatype, op):  # a call of which only the arguments matter
    return datatype + 10**12 * op

number.__name__ = "number"
number = checked(number, inspect.signature(number.py_func))
FLOAT, op = MPI.FLOAT, MPI.MAX
signature = types.void(*signature.args, types.int64[::1])
wanted = str(gmpi.FLOAT + 10**12 * gmpi.MAX)
for words in ("MPI.FLOAT, MPI.MAX", "FLOAT, op=op", "gmpi.AUTO, gmpi.MAX"):
    names = dict(globals())
    exec(f"def kernel(ctx, a, out):\\n    out[0] = number(ctx, a, 4, {words})", names)
    how = {"device": False, "cc": (9, 0), "output": "ptx", "abi": "numba"}
    print("number", wanted in cuda.compile(names["kernel"], signature, **how)[0])
"""


@pytest.mark.mpi
def test_what_the_types_of_a_kernel_are_told() -> None:
    lines = json.dumps([line for line, *_ in KERNELS])
    command = [sys.executable, "-c", TYPED, lines]
    status, text = launcher.start(command, 120, NUMBA_ENABLE_CUDASIM="0")
    assert status == 0, text
    told = [json.loads(line) for line in text.splitlines() if line.startswith('"')]
    assert len(told) == len(KERNELS) + 2, text
    for (_, *words), line in zip(KERNELS, told):
        assert "\n" not in line and all(word in line for word in words), line
        assert line.endswith(":2)"), line  # the kernel's line
    assert all("a kernel cannot take mpi4py's" in line for line in told[len(KERNELS) :]), told
    assert text.count("number True") == 3, text  # numbers, known when the kernel is compiled
