"""The device library compiled for sm_90, without a GPU: what the ring protocol relies on."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import launcher
import pytest
from sm90_names import DIRECT, INLINE, MOVING

from device_lib.platform import assembler

pytestmark = pytest.mark.sm90
#: Registers that kernels of ``compile_for_sm90.LINKED`` take for themselves, about.
# script_block interprets programs of all calls, with what each call has in the user's kernel: 154.
OWN = {"exchange": 48, "checked": 80, "views": 128, "script_block": 160}
SYSTEM_STORE = re.compile(r"\bst\.[\w.]*\bsys\b[\w.]*")
PACKET_STORE = "st.relaxed.sys.global.b128"
PACKET_LOAD = "ld.relaxed.sys.global.b128"


def fill(cache: Path) -> list[Path]:
    """The files of an empty cache that ``gmpi cache fill`` has filled, in four minutes or more."""
    options = {"NUMBA_ENABLE_CUDASIM": "0", "GMPI_CACHE_DIR": str(cache)}
    command = ["-m", "gmpi", "cache", "fill", "--cc", "9.0"]
    status, text = launcher.python(*command, timeout=600, **options)
    assert status == 0, text
    functions = len(list(cache.glob("*.ptx")))
    assert f"sm_90: {functions} functions in {cache}" in text
    filled = sorted(cache.iterdir())
    # For each function its PTX, and object code of each build.
    assert len(filled) == functions * (1 + len(assembler.LIMITS))
    return filled


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.full)])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``compile_for_sm90.py`` has written."""
    directory = tmp_path_factory.mktemp("sm_90")
    cache = directory / "cache"  # an empty one: everything is compiled
    some = ["--some"] if request.param == "some" else []
    filled = [] if some else fill(cache)
    options = {"NUMBA_ENABLE_CUDASIM": "0", "GMPI_CACHE_DIR": str(cache)}
    program = "tests/compile_for_sm90.py"
    limit = 240 if some else 600
    status, text = launcher.python(program, *some, str(directory), timeout=limit, **options)
    assert status == 0, text
    lean = {*cache.glob(f"*-{assembler.LEAN}-*")}  # only these are made when they are needed
    assert some or sorted({*cache.iterdir()} - lean) == filled
    return directory


@pytest.fixture(scope="module")
def library(compiled: Path) -> dict[str, str]:
    """PTX of each library function."""
    return {p.stem: p.read_text() for p in sorted(compiled.glob("gmpi_*.ptx"))}


#: What the leading warp of a block carries out, by the functions of warp scope (``row_requests``).
LED = [f"gmpi_direct_{name}" for name in (
    "ask", "ask_debug", "complete_open", "finish", "go_on", "help", "open", "open_watched",
    "report", "tell", "finish_pending", "finish_rest", "finish_short", "look_pending",
    "place_and_start", "start_pending", "start_short", "take_pending", "wait_pending",
)]  # fmt: skip


def test_what_depends_on_the_scope_is_there_for_both(library: dict[str, str]) -> None:
    for name in library:
        stem, _, scope = name.rpartition("_")
        if scope in ("block", "warp") and stem not in LED:
            assert f"{stem}_block" in library and f"{stem}_warp" in library
    assert {f"{stem}_{scope}" for stem in LED for scope in ("block", "warp")} & set(library) == {
        f"{stem}_warp" for stem in LED
    }
    assert {*INLINE, "gmpi_open_any_block", "gmpi_finish_any_warp"} <= set(library)


def test_all_kernels_link(compiled: Path) -> None:
    """``compile_for_sm90.py`` fails where one does not; among them: the library on two paths."""
    kernels = {p.stem for p in compiled.glob("kernel_*.ptx")}
    assert len(kernels) >= 5 and "kernel_two_paths" in kernels


TWO = ("gmpi_open_inline", "gmpi_put_mail")
FILL_TWO = f"""
from device_lib.api import exports
from device_lib.platform import assembler, library
from gmpi.launch import precompile
from gmpi.__main__ import main
library.functions = {{name: library.functions[name] for name in {TWO}}}
main(["cache", "fill", "--cc", "9.0"], standalone_mode=False)
precompile.compile_without_gpu((9, 0))
before = sorted(library.cache_directory().iterdir())
for name in {TWO}:
    for limit in assembler.LIMITS:
        library.compile_object(name, (9, 0), limit)
assert sorted(library.cache_directory().iterdir()) == before
print(len(before), "files")
"""


ASKED_EACH_TIME = f"""
import contextlib
from device_lib.api import exports
from device_lib.platform import library
from gmpi.launch import precompile
precompile.compile_without_gpu((9, 0))
library.remembered = contextlib.nullcontext
for name in {TWO}:
    library.compile_ptx(name, (9, 0))
"""
NAMES = re.compile(r"_Z[\w$]*|\$L\w*")  # which Numba numbers in the order in which it compiles


def test_the_cache_is_filled_with_what_kernels_look_for(tmp_path: Path) -> None:
    options = {"NUMBA_ENABLE_CUDASIM": "0", "GMPI_CACHE_DIR": str(tmp_path / "filled")}
    status, text = launcher.python("-c", FILL_TWO, **options)
    assert status == 0 and f"sm_90: 2 functions in {tmp_path}" in text, text
    # For each function its PTX, and object code of each build.
    assert f"{2 * (1 + len(assembler.LIMITS))} files" in text, text
    # It is the same if Numba is asked each time what types calls have.
    options["GMPI_CACHE_DIR"] = str(tmp_path / "asked")
    status, text = launcher.python("-c", ASKED_EACH_TIME, **options)
    assert status == 0, text
    kept, asked = (
        {p.name: NAMES.sub("", p.read_text()).partition("\n")[2] for p in place.glob("*.ptx")}
        for place in (tmp_path / "filled", tmp_path / "asked")
    )
    assert len(kept) == 2 and kept == asked


def test_a_record_is_published_by_one_store_of_a_unit_per_lane(library: dict[str, str]) -> None:
    # Two 8-byte stores in place of one of 16 could be seen torn: new words under an old tag.
    for name in ("gmpi_open_inline", "gmpi_transact", "gmpi_open_any_block", "gmpi_open_any_warp"):
        assert PACKET_STORE in library[name], name
    # One word that stands for itself: the ready word of GPU staging, the credit of a partitioned
    # request, the flag of a partition, the flag that a request has been freed.
    ready = "st.relaxed.sys.global.u64"
    stages = re.compile(
        "gmpi_(fill|open_scattered|partitioned_(open|start|start_any|start_all|ready_otherwise)"
        "|direct_store_late|free_open)_(block|warp)"
    )
    for name, ptx in library.items():
        if name.startswith("gmpi_window_accumulate"):
            continue  # the user's elements, each as a whole
        allowed = {PACKET_STORE, ready} if stages.fullmatch(name) else {PACKET_STORE}
        assert set(SYSTEM_STORE.findall(ptx)) <= allowed, name
        assert ptx.count(ready) <= 1, name


ATOMIC = re.compile(r"(?<![\w.])(?:atom|red)\.[\w.]+")
UPDATES = ("add.u{0}", "add.f{0}", "min.s{0}", "max.u{0}", "and.b{0}", "or.b{0}", "xor.b{0}")


@pytest.mark.parametrize("scope", ["block", "warp"])
def test_updates_of_windows_are_atomic_for_all_gpus(library: dict[str, str], scope: str) -> None:
    for call, kind in (("accumulate", "red"), ("get_accumulate", "atom")):
        ptx = library[f"gmpi_window_{call}_{scope}"]
        for update in UPDATES:
            for bits in (32, 64):
                assert f"{kind}.relaxed.sys.global.{update.format(bits)}" in ptx, (call, update)
        loops = {f"atom.relaxed.sys.global.cas.b{bits}" for bits in (32, 64)}
        found = set(ATOMIC.findall(ptx))
        assert loops <= found
        # One of this GPU's own scope would not be atomic with the others'.
        assert all(".relaxed.sys.global." in instruction for instruction in found), found
        if kind == "red":  # which does not wait for the answer
            assert {name for name in found if name.startswith("atom")} == loops
    ptx = library[f"gmpi_window_compare_and_swap_{scope}"]
    assert set(ATOMIC.findall(ptx)) == loops
    # What a flush says has been stored, and no fence in a Put.
    for call in ("complete", "begin_fence", "end_fence", "unlock_all", "put_notify", "count"):
        assert "fence.acq_rel.sys" in library[f"gmpi_window_{call}_{scope}"], call
    for call in ("put", "get", "accumulate"):
        assert not re.search(r"\b(fence|membar)\b", library[f"gmpi_window_{call}_{scope}"]), call


def test_completions_are_read_by_units(library: dict[str, str]) -> None:
    for name in ("gmpi_finish_small", "gmpi_transact", "gmpi_finish_any_block"):
        assert PACKET_LOAD in library[name], name


def test_no_fence_on_the_way_of_a_small_message(library: dict[str, str]) -> None:
    # A system fence costs half a microsecond over PCIe.
    assert not re.search(r"\b(fence|membar)\b", library["gmpi_open_inline"])
    for name in ("gmpi_finish_small", "gmpi_transact"):  # the one is for payloads in staging
        assert len(re.findall(r"\b(?:fence|membar)\b", library[name])) <= 1, name


def test_staging_is_complete_before_a_record_says_so(library: dict[str, str]) -> None:
    for scope in ("block", "warp"):
        assert "fence.acq_rel.sys" in library[f"gmpi_open_any_{scope}"]


def test_the_fast_paths_neither_spill_nor_call(compiled: Path, library: dict[str, str]) -> None:
    found = json.loads((compiled / "properties.json").read_text())
    for name in INLINE + DIRECT + MOVING:
        assert found[name] == {"stack": 0, "spill_stores": 0, "spill_loads": 0}, name
        assert name in MOVING or not re.search(r"^\s*call\b", library[name], re.M), name
        assert name in MOVING or not re.search(r"(?<!isspacep)\.local", library[name]), name


def test_only_traced_kernels_have_anything_of_traces(
    compiled: Path, library: dict[str, str]
) -> None:
    """They are compiled apart, and read the clock twice for each call; the timer only now and then:
    in a function of the library, and at the end of long waits."""
    plain = (compiled / "kernel_exchange.ptx").read_text()
    traced = (compiled / "kernel_traced_exchange.ptx").read_text()
    assert "%globaltimer" not in plain
    assert "%clock64" not in plain and "gmpi_trace_notes" not in plain
    # Irecv, Isend and two Waits; a Wait that was long looks at both.
    assert traced.count("%globaltimer") == 2
    assert traced.count("%clock64") == 2 * 4 + 2
    pair = library["gmpi_trace_pair"]
    assert pair.count("%globaltimer") == pair.count("%clock64") == 1
    assert len(re.findall(r"call\.uni[^;]*gmpi_trace_pair", traced)) == 4
    # Four and five pairs of words, each with a condition of its own; of a long wait one more.
    stores = re.findall(
        r"and\.b32 w, w, b; setp[^;]*; @p st\.relaxed\.gpu\.global\.v2\.u64", traced
    )
    assert len(stores) == 2 * 4 + 2 * (5 + 1)
    assert "gmpi_trace_pair" in (compiled / "kernel_traced_calls.ptx").read_text()
    # The event's address and its words are integers: 64 bits mixed with others would be floats.
    assert not re.search(r"\.f(32|64)\b", traced)


#: What belongs to operations that a kernel may use or not.
OF_OPERATIONS = {
    "blocks": r"open_(blocks|counted)",
    "one-sided": r"window_\w+",
    "direct collectives": r"direct_(allreduce|bcast|barrier|collect_\w+|\w+_round|\w+_collective"
    r"|blocks_at_once|\w+_blocks|reduce_counted|pipeline|\w+_piece|\w*transfer)",
    "partitioned": r"partitioned_(make|free|start|pready|parrived|ready_otherwise|ready_range)\w*",
    "several": r"(test_(all|any|some)|finish_(all|one)(_beside)?)",
    "derived datatypes": r"open_scattered",
}
#: Who waits takes what has come of collectives that do not block and that another kernel, or
#: another block, may have started: for this it needs these.
PENDING = {f"gmpi_direct_{name}_pending_warp" for name in ("finish", "look", "take", "wait")}
PENDING |= {"gmpi_direct_finish_short_warp", "gmpi_direct_tell_collective_warp"}


def linked_with(ptx: str, library: dict[str, str]) -> set[str]:
    """The functions that a kernel links: those that it calls, and those that they call."""
    found: set[str] = set()
    waiting = [ptx]
    while waiting:
        called = re.findall(r"^\.extern \.func .*?(gmpi_\w+)", waiting.pop(), re.M)
        waiting += [library[name] for name in called if name not in found]
        found |= set(called)
    return found


def test_a_kernel_links_nothing_of_operations_that_it_does_not_use(
    compiled: Path, library: dict[str, str]
) -> None:
    def of(operation: str, names: set[str]) -> set[str]:
        pattern = re.compile(f"gmpi_({OF_OPERATIONS[operation]})_(block|warp)")
        return {name for name in names if pattern.fullmatch(name)}

    exchange, blocks, windows = (
        linked_with((compiled / f"kernel_{name}.ptx").read_text(), library)
        for name in ("exchange", "blocks", "windows")
    )
    for operation in OF_OPERATIONS:
        assert of(operation, set(library)), operation
        assert not of(operation, exchange) - PENDING, operation
    assert of("blocks", blocks) and not of("one-sided", blocks)
    assert of("one-sided", windows) and not of("blocks", windows)
    # Who waits may move what another kernel's request has in blocks: these two it does link.
    moving = {"gmpi_pack_blocks", "gmpi_unpack_blocks"}
    assert moving <= exchange
    sizes = {name: len(library[name]) for name in exchange}
    assert sum(sizes[name] for name in moving) < 0.01 * sum(sizes.values()), sizes
    assert sum(sizes[name] for name in PENDING) < 0.06 * sum(sizes.values()), sizes
    # And who finds no slot closes what another kernel has freed, by one function more.
    assert sizes["gmpi_close_freed_block"] < 0.025 * sum(sizes.values()), sizes


def test_what_calls_return_is_not_cleared_on_the_stack(compiled: Path) -> None:
    ptx = (compiled / "kernel_blocks.ptx").read_text()  # at 0cc9064 46 times, by all threads
    assert len(re.findall(r"st\.local\.v2\.u64\s+\[.*\], \{(%rd\d+), \1\}", ptx)) <= 16


def test_a_kernel_takes_no_more_registers_than_a_build_allows(compiled: Path) -> None:
    """Blocks of 512 and 1024 threads: at 0afb4d3 a kernel that called GMPI took 246 registers."""
    for name, taken in json.loads((compiled / "registers.json").read_text()).items():
        # Of the smallest build only, without --full: to assemble one takes ten seconds.
        assert str(min(assembler.LIMITS)) in taken and len(taken) in (1, len(assembler.LIMITS))
        for limit, number in taken.items():
            assert number <= max(int(limit), OWN[name]), (name, taken)
    # The kernel that everybody writes first has next to none of its own.
    assert OWN["exchange"] <= min(assembler.LIMITS) and 65536 // min(assembler.LIMITS) == 1024


def test_a_kernel_with_a_limit_of_registers_of_its_own_links(compiled: Path) -> None:
    """The linker refuses functions that take more; so it refused such kernels altogether."""
    builds = [limit for _, limit in json.loads((compiled / "limited.json").read_text())]
    assert builds == [64, 64, 255, 128, 40, 128, 64, 64][: len(builds)] and len(builds) >= 2


def test_long_segments_are_reduced_by_words_of_16_bytes(
    library: dict[str, str], tmp_path: Path
) -> None:
    """Four loads of each thread under way; and with 64 registers only what belongs to its callers
    is kept on the stack: stored once, and loaded once."""
    name = "gmpi_direct_reduce_words"
    ptx = library[name]
    loads = [m.start() for m in re.finditer(r"ld\.relaxed\.sys\.global\.v2\.u64", ptx)]
    first_sum = ptx.index("add.rn.f64")
    assert len(loads) == 4 and max(loads) < first_sum
    assert len(re.findall(r"\bst\.v2\.u64", ptx)) == 2
    (tmp_path / "words.ptx").write_text(ptx)
    limit = min(assembler.LIMITS)
    command = [
        assembler.ptxas(), "-c", "-v", "-arch=sm_90a", f"--maxrregcount={limit}",
        str(tmp_path / "words.ptx"), "-o", str(tmp_path / "words.cubin"),
    ]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    said = said[said.index(f"properties for {name}") :]
    found = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert found is not None and int(found[1]) == int(found[2]) < 4 * limit, said


@pytest.mark.parametrize(
    ("kind", "kernels"),
    [("tiles", (4, 4)), ("bytes", (4, 4)), ("strided", (8, 18)), ("along", (4, 6)),
     ("runs", (4, 6)), ("parts", (4, 12))],
)  # fmt: skip
def test_packing_does_not_spill(compiled: Path, kind: str, kernels: tuple[int, int]) -> None:
    found = json.loads((compiled / "properties.json").read_text())
    names = [name for name in found if name.startswith(kind + "_")]
    assert len(names) in kernels
    for name in names:
        assert found[name] == {"stack": 0, "spill_stores": 0, "spill_loads": 0}, name


def test_there_is_no_arithmetic_in_floating_point(library: dict[str, str]) -> None:
    # Numba makes float64 of int64 and uint64: a handle would lose its low bits.
    reduce = re.compile(
        "gmpi_direct_(allreduce|allreduce_alone|reduce_alone|look_for_round)_(block|warp)"
        "|gmpi_direct_(take_pending|finish_short)_warp"
        "|gmpi_direct_(blocks_at_once|blocks_alone|look_for_blocks)_(block|warp)"
        "|gmpi_direct_(long_reduce|reduce_words|reduce_rest)"
        "|gmpi_window_(get_)?accumulate_(block|warp)"
    )
    for name, ptx in library.items():
        if reduce.fullmatch(name):  # what the user's elements are
            assert "add.rn.f64" in ptx, name
            assert not re.search(r"\bcvt\S*\.f(32|64)\b", ptx), name
        else:
            assert not re.search(r"\.f(32|64)\b", ptx), name


def test_what_overflows_is_added_modulo_two_to_the_64(compiled: Path) -> None:
    """Numba lets the compiler believe that no int64 overflows: LOR was that of the signs."""
    text = (compiled / "kernel_ends.ptx").read_text()  # whether a word is 0 is a carry
    assert len(re.findall(rf"add.s64 .*, {2**63 - 1};", text)) == 2


def test_shared_memory_of_the_library_is_one_weak_symbol(library: dict[str, str]) -> None:
    for name, ptx in library.items():
        for line in re.findall(r"^.*\.shared .*$", ptx, re.M):
            if "gmpi_shared" in line and not re.match(r"\s*(ld|st)\b", line):
                # Of this size, or Himeno's blocks leave 28 KiB to L1 (test_himeno_sm90.py).
                assert re.match(r"\.extern|\.weak .*\[896\]", line), (name, line)


def test_cuda_cpp_links_with_the_library(compiled: Path, request: pytest.FixtureRequest) -> None:
    """Kernels in C++ and the calls that they make: by nvJitLink, and by nvcc."""
    everything = [] if "[some" in request.node.name else ["--all"]
    options = {"NUMBA_ENABLE_CUDASIM": "0", "GMPI_CACHE_DIR": str(compiled / "cache")}
    (compiled / "cpp").mkdir()
    program = ["tests/compile_cpp_for_sm90.py", *everything, str(compiled / "cpp")]
    status, text = launcher.python(*program, timeout=600 if everything else 150, **options)
    assert status == 0, text
    found = json.loads(text.splitlines()[-1])
    linked = found["cupy"]
    assert linked["kernels"] == ["pingpong", "sum", "heat"] and not linked["makes_requests"]
    # Only what the source calls is linked, and all of it.
    names = ("allreduce", "comm_rank", "irecv", "isend", "recv", "send", "waitall")
    assert linked["calls"] == [f"gmpi_c_{name}" for name in names] and linked["parts"] > 30
    assert linked["bytes"] > 50_000
    assert found["declared"]["declared"] and found["declared"]["bytes"] > 500
    assert 'program.cu(2): error: identifier "GMPI_Isent" is undefined' in found["wrong"]
    assert "Unresolved extern function 'f'" in found["missing"]
    if everything:
        by_nvcc = found["nvcc"]
        assert by_nvcc["calls"] == len(names) and "-maxrregcount=64" in by_nvcc["options"]
        # With -dlto the calls are part of the kernels, what they call in turn is not.
        for way, calls in (("plain", linked["calls"]), ("dlto", [])):
            assert "gmpi_copy_to_staging" in by_nvcc[way], way
            assert [n for n in by_nvcc[way] if n.startswith("gmpi_c_")] == calls, way
        # The kernels need no more registers than the library that they are linked with.
        assert by_nvcc["registers"] == {"pingpong": 64, "sum": 64, "heat": 64}
        assert len(found["all"]["calls"]) > 200 and found["all"]["makes_requests"]
