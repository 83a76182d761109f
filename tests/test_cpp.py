"""GMPI for CUDA C++: the header and the table it is made of. What is compiled: test_ptx.py."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import launcher
import numpy as np
import pytest
from cuda.bindings.driver import CUfunction_attribute as Attribute
from mpi4py import MPI

import gmpi
from device_lib.api import arguments as given
from device_lib.platform.context import DeviceContext
from gmpi.cpp import header, launching, link, module, nvcc, table
from gmpi.launch import launch

FUNCTION = re.compile(
    r"/// (?P<text>.*) Called by (?P<scope>.*)\.\n"
    r"static __device__ __forceinline__ (?P<returns>[\w <>,]+?) (?P<name>GMPI_\w+)\(\n"
    r"(?P<arguments>[^)]*)\) \{\n(?P<body>(?:    .*\n)+)\}"
)
#: Of Python's annotations in C++.
RETURNS = {"int": "long long", "bool": "bool", "float": "double", "Status": "gmpi_status"}


@pytest.fixture(scope="module")
def text() -> str:
    return header.text()


def exported() -> list[str]:
    """The calls of kernels, as ``gmpi`` has them."""
    return [n for n in gmpi.__all__ if re.match("GMPI_[A-Z][a-z]", n)]


def in_cpp(annotation: object) -> str:
    names = re.findall(r"\b(int|bool|float|Status)\b", str(annotation))
    found = [RETURNS[name] for name in names or [annotation.__name__]]  # type: ignore[attr-defined]
    if len(found) == 1:
        return found[0]
    return f"gmpi_{'pair' if len(found) == 2 else 'triple'}<{', '.join(found)}>"


def test_the_header_has_every_call_with_its_arguments(text: str) -> None:
    found = {match["name"]: match for match in FUNCTION.finditer(text)}
    assert sorted(found) == exported() and len(found) > 200
    for name, match in found.items():
        function = getattr(gmpi, name)
        signature = inspect.signature(function)
        arguments = [part.partition(" =")[0] for part in match["arguments"].split(",")]
        names = [re.split(r"[ *]", argument)[-1] for argument in arguments]
        assert names == list(signature.parameters), name
        assert " ".join(function.__doc__.split()).startswith(match["text"]), name
        returns = signature.return_annotation
        assert match["returns"] == in_cpp(getattr(returns, "__args__", None) or returns), name
        # What the call is given arrives where the compiled function looks for it.
        symbol = table.calls()[table.PREFIX + name.removeprefix("GMPI_").lower()].symbol
        passed = re.search(rf"{symbol}\(([^;]*)\)", match["body"])
        assert passed is not None, name
        heads = [word.replace("(long long)", "").split(".")[0] for word in passed[1].split(", ")]
        assert list(dict.fromkeys(heads)) == names, name
        declared = re.search(rf"__device__ [\w ]+ {symbol}\(((?:long long(?:, )?)+)\);", text)
        assert declared is not None and declared[1].count("long long") == len(heads), name


def test_scopes_are_said(text: str) -> None:
    found = {match["name"]: match["scope"] for match in FUNCTION.finditer(text)}
    assert found["GMPI_Send"] == "all threads of the block"
    assert found["GMPI_Send_warp"] == "all threads of the warp"
    assert found["GMPI_Send_grid"] == "all threads of all blocks"
    assert found["GMPI_Cart_rank"] == found["GMPI_Comm_size"] == "any thread"


def test_what_a_call_only_reads_is_const(text: str) -> None:
    found = {m["name"]: re.sub(r"\s+", " ", m["arguments"]) for m in FUNCTION.finditer(text)}
    assert "const void *buf" in found["GMPI_Isend"] and " void *buf" in found["GMPI_Bcast"]
    assert "const void *" not in found["GMPI_Recv"] + found["GMPI_Sendrecv_replace"]
    assert "const void *sendbuf, " in found["GMPI_Allgatherv"]
    assert "const int *recvcounts, const int *displs" in found["GMPI_Allgatherv"]
    assert "const void *origin_addr" in found["GMPI_Put"]
    assert "const" not in found["GMPI_Get"] + found["GMPI_Waitsome"] + found["GMPI_Cart_get"]
    assert "const int *array_of_partitions" in found["GMPI_Pready_list"]
    assert "const int *coords" in found["GMPI_Cart_rank"]
    assert "long long *requests, gmpi_status *statuses = nullptr" in found["GMPI_Waitall"]


def test_what_cannot_be_a_number_is_a_pointer() -> None:
    """Else a call does not compile, and only a program that makes all of them tells."""
    for call in table.calls().values():
        for parameter in call.parameters:
            if given.INTEGER not in given.allowed(parameter.name)[0]:
                assert parameter.kind != "integer", (call.name, parameter.name)


def test_constants_are_those_of_the_mpi_library(text: str) -> None:
    found = {
        name: int(number)
        for name, number in re.findall(r"constexpr long long GMPI_(\w+) = \(?(-?\d+)LL", text)
    }
    found |= {
        name: int(number)
        for name, number in re.findall(r"#define GMPI_(\w+) \(\(void \*\)\(?(-?\d+)LL", text)
    }
    known = {
        name.removeprefix("GMPI_"): value
        for name in gmpi.__all__
        if name.isupper() and type(value := getattr(gmpi, name)) is int
    }
    assert found == known and len(known) > 80
    assert found["PROC_NULL"] == MPI.PROC_NULL and found["ERR_TRUNCATE"] == MPI.ERR_TRUNCATE


def test_the_context_is_one_plain_argument() -> None:
    ctx = DeviceContext(1 << 40, 2, 3, 4)
    (given,) = launching.as_structure(ctx)
    assert given.dtype == launching.CONTEXT_DTYPE and given.nbytes == 32
    assert tuple(given) == ctx
    assert bytes(launching.CContext(*ctx)) == np.array(ctx, np.int64).tobytes()


def test_cpp_launch_tells_gmpi_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = DeviceContext(5, 6, 7, 8)
    seen: list[object] = []
    hooks = (lambda c, what: seen.append(what) or c._replace(shape=9), lambda c, s: seen.append(s))
    monkeypatch.setattr(launch, "_hooks", hooks)
    monkeypatch.setattr(launching, "stream_of", lambda pointer: pointer)
    with launching.cpp_launch(ctx, (2, 3), 64, name="solve", stream=11, resident=20) as given:
        assert (given.mapped, given.device, given.shape, given.identity) == (5, 6, 9, 8)
        assert seen == [launch.Launch("solve", 6, 64, 20)]
    assert seen[1:] == [11]
    wrong = launching.cpp_launch(3, 1, 32)  # type: ignore[arg-type]
    with pytest.raises(gmpi.UsageError, match="ctx is a int, allowed is Context.device"):
        wrong.__enter__()


def one_line(error: pytest.ExceptionInfo[gmpi.UsageError]) -> str:
    said = str(error.value)
    assert "\n" not in said
    return said


def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    if gmpi.SIMULATOR:
        with pytest.raises(gmpi.UsageError) as error:
            gmpi.cupy_module("")
        assert "cannot run in the simulator" in one_line(error)
    for missing in ("cuda.bindings.nvjitlink", "cuda.bindings.nvrtc"):
        link.why_not.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(link, "SIMULATOR", False)
            patch.setitem(sys.modules, missing, None)
            patch.delattr("cuda.bindings." + missing.rpartition(".")[2], raising=False)
            with pytest.raises(gmpi.UsageError) as error:
                gmpi.cupy_module("")
            assert 'pip install ".[cu13]" brings NVRTC and nvJitLink' in one_line(error)
    link.why_not.cache_clear()
    monkeypatch.setattr(link, "why_not", lambda: "")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(gmpi.UsageError) as error:
        gmpi.cupy_module("")
    assert "needs CuPy, which is not installed: pip install" in one_line(error)


def test_a_kernel_needs_a_context_among_its_arguments() -> None:
    kernel = module.CupyKernel.__new__(module.CupyKernel)
    kernel.name = "solve"
    ctx = DeviceContext(1, 2, 3, 4)
    assert kernel._context((3, ctx, 4.0)) is ctx
    with pytest.raises(gmpi.UsageError, match="kernel solve needs Context.device"):
        kernel._context((1, 2))


def test_a_kernel_that_is_not_there() -> None:
    program = link.Program(b"", ("solve", "_Z4moreP1"), (), ("gmpi_partitioned_make_block",))
    assert program.makes_requests
    made = module.CupyModule(program, (9, 0), False)
    with pytest.raises(gmpi.UsageError) as error:
        made.get_function("solv")
    assert "no kernel solv: it has solve, _Z4moreP1" in one_line(error)
    assert made.get_function("solve").name == "solve"


def compiler() -> str:
    try:
        return str(nvcc.tool("nvcc"))
    except gmpi.UsageError as exc:
        pytest.skip(str(exc))


def test_nvlink_finds_the_compiler_that_dlto_needs(tmp_path: Path) -> None:
    """CUDA's wheels have it elsewhere, and nvlink says no more than "library load error"."""
    compiler()
    source, made = tmp_path / "empty.cu", tmp_path / "toolkit" / "bin" / "nvcc"
    source.touch()
    for _ in range(2):  # the second time it is there
        assert nvcc.toolkit(tmp_path / "toolkit") == made
        command = [made, "-dlto", "-arch=sm_90a", "-rdc=true", "-cubin", "-dlink", source]
        done = subprocess.run(
            [*command, "--dryrun"], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        (folder,) = re.findall(r'-nvvmpath="([^"]*)"', done.stderr)
        assert Path(folder, "lib64", "libnvvm.so").is_file(), folder
        assert (tmp_path / "toolkit" / "lib64").is_dir()


def test_a_toolkit_that_has_all_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root, link = tmp_path / "cuda-13", tmp_path / "link"
    for path in ("bin/nvcc", "nvvm/lib64/libnvvm.so"):
        (root / path).parent.mkdir(parents=True)
        (root / path).touch()
    monkeypatch.setattr(nvcc, "tool", lambda name: root / "bin" / name)
    (link / "bin").mkdir(parents=True)  # that of wheels, which were there before
    for _ in range(2):
        assert nvcc.toolkit(link).samefile(root / "bin" / "nvcc")
        assert link.is_symlink() and (root / "bin" / "nvcc").exists()


def test_the_header_compiles_with_nvcc(text: str, tmp_path: Path) -> None:
    (tmp_path / "gmpi.cuh").write_text(text)
    source = launcher.ROOT / "examples" / "cpp" / "kernels.cu"
    command = [
        compiler(), "-arch=sm_90a", "-std=c++17", "-rdc=true", "-Werror=all-warnings",
        f"-I{tmp_path}", "-ptx", str(source), "-o", str(tmp_path / "kernels.ptx"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gmpi_c_waitall" in (tmp_path / "kernels.ptx").read_text()


def test_gmpi_cpp_writes_the_header_without_a_compiler(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from gmpi.__main__ import main

    runner = CliRunner()
    done = runner.invoke(main, ["cpp", "-o", str(tmp_path / "new"), "--header-only"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "new" / "gmpi.cuh").read_text() == header.text()
    if gmpi.SIMULATOR:
        done = runner.invoke(main, ["cpp", "-o", str(tmp_path)])
        assert done.exit_code == 2 and "the simulator compiles nothing" in done.output


class Driver:
    """CuPy and its driver, as a kernel asks them: a function is named by its build's limit."""

    STATIC = 1 << 10
    PROCESSORS = 132

    def __init__(self) -> None:
        self.allowed: list[tuple[int, int]] = []
        self.linked: list[int] = []
        self.cuda = SimpleNamespace(
            driver=self,
            Device=lambda: SimpleNamespace(attributes={"MultiProcessorCount": self.PROCESSORS}),
        )

    def funcGetAttribute(self, attribute: int, function: int) -> int:
        known = Attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, Attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        return {int(known[0]): function, int(known[1]): self.STATIC}[attribute]

    def funcSetAttribute(self, function: int, attribute: int, value: int) -> None:
        assert attribute == int(Attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        self.allowed.append((function, value))

    def occupancyMaxActiveBlocksPerMultiprocessor(
        self, function: int, threads: int, shared: int
    ) -> int:
        return 65536 // (function * threads)

    def kernel(self, monkeypatch: pytest.MonkeyPatch) -> module.CupyKernel:
        monkeypatch.setattr(module, "_cupy", lambda: self)
        made = module.CupyModule(link.Program(b"", ("solve",), (), ()), (9, 0), False)
        monkeypatch.setattr(made, "_function", self.function)
        return made.get_function("solve")

    def function(self, name: str, limit: int) -> Any:
        self.linked.append(limit)
        return SimpleNamespace(ptr=limit)


@pytest.mark.parametrize(
    ("blocks", "threads", "limit"),
    [(1, 32, 255), (132, 256, 255), (133, 256, 128), (528, 256, 64), (1, 1024, 64), (9999, 64, 64)],
)
def test_a_launch_takes_the_first_build_that_fits(
    monkeypatch: pytest.MonkeyPatch, blocks: int, threads: int, limit: int
) -> None:
    """As kernels of Numba do (test_builds.py); others are not linked."""
    driver = Driver()
    function, what = driver.kernel(monkeypatch)._chosen(blocks, threads, 0)
    assert function.ptr == what.registers == min(driver.linked) == limit
    assert (what.name, what.blocks, what.threads) == ("solve", blocks, threads)
    assert what.resident == 65536 // (limit * threads) * driver.PROCESSORS
    assert what.shared_bytes == driver.STATIC and not what.makes_requests
    assert not driver.allowed


def test_ranks_that_share_a_gpu_leave_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "sharers", lambda: 2)
    function, _ = Driver().kernel(monkeypatch)._chosen(132, 256, 0)
    assert function.ptr == 128
    assert Driver().kernel(monkeypatch).max_blocks(256) == 2 * Driver.PROCESSORS


def test_a_kernel_is_let_have_much_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamic with static memory is what counts; the largest grid is that of the leanest build."""
    for shared, allowed in ((47 << 10, []), ((47 << 10) + 1, [(255, (47 << 10) + 1)])):
        driver = Driver()
        _, what = driver.kernel(monkeypatch)._chosen(1, 32, shared)
        assert driver.allowed == allowed and what.shared_bytes == shared + driver.STATIC
    assert Driver().kernel(monkeypatch).max_blocks(256) == 4 * Driver.PROCESSORS
