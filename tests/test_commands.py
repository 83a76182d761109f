"""The ``gmpi`` command as a whole: examples, wrong use, what ``info`` finds, how fast it is."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import launcher
import pytest
from click.testing import CliRunner

import gmpi
from device_lib.platform import front_end
from gmpi import environment
from gmpi.__main__ import main
from gmpi.commands import info
from gmpi.observe.libraries import libraries

INFO_S = 1.0


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """All of them, the groups too, by what users type."""
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


ALL = dict(commands(main, "gmpi"))


def example_lines(command: click.Command) -> list[str]:
    title, *lines = (command.epilog or "").removeprefix("\b\n").splitlines()
    assert title == "Examples:"
    return [line.strip() for line in lines]


@pytest.mark.parametrize("path", ALL)
def test_the_help_of_a_command_has_examples_that_its_parser_takes(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = example_lines(ALL[path])
    assert lines
    assert any(line.partition("gmpi ")[2].startswith(path[5:]) for line in lines)
    for line in lines:
        words = shlex.split(line.partition("gmpi ")[2], comments=True)
        for word in words:
            if word.endswith((".json", ".cu")):
                Path(word).write_text("{}")
        command: click.Command = main
        while isinstance(command, click.Group) and words and words[0] != "COMMAND":
            command = command.commands[words.pop(0)]
        if words and words[0] != "COMMAND":
            command.make_context(path, words)
    text = CliRunner().invoke(ALL[path], ["--help"]).output
    assert all(f"  {line}\n" in text for line in lines), text


def test_each_command_speaks_json() -> None:
    for path, command in ALL.items():
        if not isinstance(command, click.Group):
            assert "--json" in {o for p in command.params for o in p.opts}, path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "--opn"], "Error: No such option '--opn'. Did you mean '--open'?; gmpi info"),
        (["ifno"], "Error: No such command 'ifno'. Did you mean 'info'?; gmpi --help has an"),
        (["cache", "fill", "--cc"], "Error: Option '--cc' requires an argument; gmpi cache fill"),
        (["info", "more"], "Error: Got unexpected extra argument (more); gmpi info --help has an"),
    ],
)
def test_wrong_use_gets_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words, prog_name="gmpi")
    told = capsys.readouterr()
    assert ended.value.code == 2 and not told.out
    # What click itself words differs a little between its releases: "No such option '--opn'".
    line = told.err.strip()
    assert "\n" not in line and line.endswith("--help has an example"), line
    bare = [re.sub(r"'|\(Possible.*?\)|Did you mean.*?\?", "", t) for t in (line, message)]
    assert bare[0].split()[:5] == bare[1].split()[:5], line


@pytest.mark.parametrize("simulator", [True, False])
def test_gmpi_info_is_fast(simulator: bool) -> None:
    """Without opening a context; by processor time, since tests run beside others."""
    if not simulator and front_end.has_driver():
        pytest.skip("there is a driver: Numba asks it for its GPUs")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "gmpi", "info"]
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": str(int(simulator))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = "not tried" if simulator else "no CUDA driver"
    assert done.returncode == (not simulator) and said in done.stdout, done.stdout + done.stderr
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < INFO_S * launcher.TIME_FACTOR


def test_versions_name_the_library_that_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    gmpi.show_versions()
    text = capsys.readouterr().out
    assert gmpi.__version__ in text and "\x1b" not in text
    (path,) = (line for line in text.splitlines() if re.search(r"/libmpi\b[^/]*\.so", line))
    assert path in Path("/proc/self/maps").read_text()
    gmpi.show_versions(as_json=True)
    assert path in json.loads(capsys.readouterr().out)["libraries"]


MAPS = """\
7f0 r-xp 0 08:01 1 /usr/lib/libmpi.so.40.30.7
7f1 r-xp 0 08:01 1 /usr/lib/libmpi.so.40.30.7
7f2 r-xp 0 08:01 2 /opt/a b/libcuda.so.580.65 (deleted)
7f3 r-xp 0 08:01 3 /usr/lib/libc.so.6
7f4 rw-p 0 00:00 0 [heap]
7f5 rw-p 0 00:00 0
7f6 r-xp 0 08:01 4 /usr/lib/mpi4py/MPI.abi3.so
"""


def test_libraries_are_those_of_mpi_and_cuda() -> None:
    found = libraries(MAPS)
    assert found == ["/opt/a b/libcuda.so.580.65 (deleted)", "/usr/lib/libmpi.so.40.30.7"]


TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tSYS\tPIX\t0-47\t0\t\tN/A
GPU1\tNV18\t X \tNODE\tSYS\t0-47\t0\t\tN/A
GPU2\tSYS\tNODE\t X \tSYS\t48-95\t1\t\tN/A
NIC0\tPIX\tSYS\tSYS\t X

Legend:

  X    = Self
"""


def test_links_between_gpus() -> None:
    assert environment.links(TOPOLOGY) == {"0-1": "NV18", "0-2": "SYS", "1-2": "NODE"}
    assert environment.links("") == {}


def test_a_page_about_gpus() -> None:
    """What a machine with GPUs would show, from facts as ``environment`` finds them."""
    facts = environment.software()
    gpu = {
        "number": 0, "name": "H200", "compute_capability": "9.0", "memory": None,
        "multiprocessors": 132, "concurrent_managed_access": True, "pci": "0000:18:00.0",
        "numa_node": None, "cores_near": None,
    }  # fmt: skip
    facts["cuda"] = {"simulator": False, "gpus": [gpu], "links": {"0-1": "NV18"}, "mps": False}
    facts |= {"cores": "0-3", "settings": {"problem": "no", "warnings": ["odd"]}}
    facts["context"] = {"opens": False, "problem": "ConfigError: no"}
    text = info.describe(facts)
    for part in ("H200", "GPU 0-1  NV18", "MPS daemon", "does not run", "ConfigError: no", "odd"):
        assert part in click.unstyle(text), text
