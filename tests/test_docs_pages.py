"""What pages of the documentation show runs, and what they name exists."""

from __future__ import annotations

import ast
import html
import json
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import launcher
import mpi4py
import pytest
from page_code import SHELL_ELSEWHERE, Block, blocks

import gmpi

PAGES = sorted(
    path.relative_to(launcher.ROOT).as_posix()
    for path in [
        launcher.ROOT / "README.md",
        launcher.ROOT / "CHANGELOG.md",
        launcher.ROOT / "CONTRIBUTING.md",
        launcher.ROOT / "SECURITY.md",
        *(launcher.ROOT / "docs").rglob("*.md"),
        launcher.ROOT / "examples" / "README.md",
        launcher.ROOT / "benchmarks" / "README.md",
    ]
)
FOLDERS = "gmpi|device_lib|host_proxy|tests|examples|benchmarks|docs"


#: How programs of pages are run: the only command that is not run as it stands.
RUN = r"NUMBA_ENABLE_CUDASIM=1 mpiexec -n 2 python \w+\.py\n"


def text_of(page: str) -> str:
    return (launcher.ROOT / page).read_text()


def anchors(text: str) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ +(.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


PROGRAMS = [
    block
    for page in PAGES
    for block in blocks(page)
    if block.language == "python" and not block.skipped
]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What all programs of all pages print, on two ranks, in one start of MPI."""
    where = tmp_path_factory.mktemp("pages")
    paths = [where / re.sub(r"\W", "_", block.name) for block in PROGRAMS]
    for path, block in zip(paths, PROGRAMS):
        path.write_text(block.program)
    program = str(launcher.RANKS / "page_programs.py")
    _, text = launcher.mpi(2, program, *map(str, paths))
    return text


@pytest.mark.mpi
@pytest.mark.mpich
@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_the_python_in_the_page_runs(block: Block, output: str) -> None:
    assert re.sub(r"\W", "_", block.name) + " passed" in output, output
    if block.page == "README.md":
        for rank in (0, 1):
            line = f"rank {rank} received [{1 - rank}. {1 - rank}. {1 - rank}.] ..."
            assert line in output, output


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_a_page_are_run_or_say_why_not(page: str) -> None:
    elsewhere = SHELL_ELSEWHERE.get(page, "")
    for name in elsewhere.split(", ") if elsewhere else ():
        assert (launcher.ROOT / name).exists(), name
    for block in blocks(page):
        if block.language in ("sh", "bash", "console"):
            if block.mark.strip() == "run":  # a program of the page, which runs like this
                assert re.fullmatch(RUN, block.text), block.name
                name = block.text.split()[-1]
                assert f"```python\n# {name}\n" in text_of(page), block.name
            else:
                assert elsewhere or block.skipped, block.name


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S)
    folder = (launcher.ROOT / page).parent
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        path = folder / name if name else launcher.ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text()), target


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    for name in re.findall(
        rf"(?<![\w/.])(?:{FOLDERS})/[\w/]+\.(?:py|sh|pml|md|json|dot|svg|cu)\b", text_of(page)
    ):
        assert (launcher.ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_in_which_folder_a_file_is(page: str) -> None:
    """``ring.py`` alone is of no use: there are two, and a reader has to search for them."""
    folders = [launcher.ROOT / name for name in FOLDERS.split("|")]
    ours = {path.name for folder in folders for path in folder.rglob("*.*")}
    found = re.findall(r"`([\w-]+\.(?:py|sh|pml|cu))\b", text_of(page))
    assert sorted(set(found) & ours) == []


@pytest.mark.parametrize("name", ["message"])
def test_a_figure_is_drawn_from_its_source(name: str) -> None:
    """Who edits one and not the other has a figure that names files of the past."""
    source = text_of(f"docs/figures/{name}.dot")
    drawn = " ".join(html.unescape(text_of(f"docs/figures/{name}.svg")).split())
    rows = re.findall(r"<td[^>]*>(?:<b>)?(.*?)(?:</b>)?</td>", source)
    labels = [line for text in re.findall(r'label="(.*?)"', source) for line in text.split(r"\n")]
    assert len(rows) > 20 and len(labels) > 5
    for text in rows + labels:
        assert " ".join(text.split()) in drawn, text
    for path in re.findall(rf"\b(?:{FOLDERS})/[\w/]+\.py", source):
        assert (launcher.ROOT / path).exists(), path


@pytest.mark.mpi
@pytest.mark.mpich
def test_pages_made_of_docstrings_are_current() -> None:
    status, text = launcher.start([sys.executable, "docs/make_api.py", "--check"], 100)
    assert status == 0, text


def test_the_page_of_operations_names_what_there_is() -> None:
    """Each call of kernels and each of the host, and none that is not there."""
    from gmpi.host.calls import Host

    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \| .*\|$", text_of("docs/operations.md"), re.M)
    kernel = {name for row in rows for name in re.findall(r"GMPI_\w+", row[1])}
    exported = {n for n in gmpi.__all__ if re.match(r"GMPI_[A-Z][a-z]+", n)}
    assert kernel == {n for n in exported if not n.endswith(("_warp", "_grid"))}
    host = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row[2])}
    assert host == {name for name in dir(Host) if name[0].isupper()}


#: Of MPI 1, of MPI 5, of proposals, with another type of count; and types of functions.
NOT_OF_MPI_4_1 = re.compile(
    r"Address|Attr_\w+|Errhandler_(create|get|set)|Keyval_\w+|Type_(extent|hindexed|hvector|lb|struct|ub)"
    r"|Abi_\w+|Comm_(ack_failed|i?agree|is_revoked|revoke|i?shrink)|\w+_[cx]|\w+(_fn|_function(_c)?)"
)


def test_operations_names_all_of_mpi() -> None:
    """Each function that mpi4py declares is in a row, and each row is of functions."""
    declared = (Path(mpi4py.__file__).parent / "libmpi.pxd").read_text()
    names = set(re.findall(r"^ *\w[\w ]*\** ?MPI_([A-Z][a-z]\w*)\(", declared, re.M))
    names = {name for name in names if not NOT_OF_MPI_4_1.fullmatch(name)}
    rows = re.findall(r"^\| (.*?) \| .* \| .* \| .*\|$", text_of("docs/operations.md"), re.M)
    told = {name.replace("\\", "") for row in rows for name in row.split(", ")}
    told -= {"MPI", "GMPI", "Synchronize"}
    told = {name for name in told if "notify" not in name}  # of MPI after 5.0
    assert len(names) > 350
    assert not {n for n in names if not any(fnmatchcase(n, pattern) for pattern in told)}
    assert not {pattern for pattern in told if not any(fnmatchcase(n, pattern) for n in names)}


def test_the_comparison_counts_lines_and_quotes_what_was_measured() -> None:
    page = text_of("docs/compare.md")
    counts = []
    for block in blocks("docs/compare.md"):
        functions = [n for n in ast.parse(block.text).body if isinstance(n, ast.FunctionDef)]
        inside = [node for function in functions for node in ast.walk(function)]
        counts.append(str(sum(isinstance(n, ast.stmt) for n in inside) - len(functions)))
    assert f"| lines of the kernels above, a statement each | {' | '.join(counts)} |" in page
    figures = {}
    for name in ("pingpong-2gpu", "roads-1gpu"):
        rows = json.loads(text_of(f"docs/measurements/{name}.json"))["rows"]
        figures[name] = {(row["size"], row.get("threads", 256)): row for row in rows}
    for size, column in ((8, 0), (1 << 16, 1)):
        pingpong = figures["pingpong-2gpu"][size, 256]["gmpi"]["p50"]
        direct = figures["roads-1gpu"][size, 256]["direct"]["p50"]
        for name, figure in (("pingpong-2gpu", pingpong), ("roads-1gpu", direct)):
            (row,) = re.findall(rf"^\|.*{name}.*\|$", page, re.M)
            cell = row.strip("|").split("|")[2 + column].strip()
            assert cell == f"{figure:.3g}", (name, size)


def test_what_is_said_to_have_run_on_gpus_is_made_by_a_program_that_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(launcher.ROOT))
    from docs import evidence

    assert {"Alltoallw", "Gatherv"} <= evidence.names_of("exchanges")  # as users write them
    assert {"Testsome", "Waitsome"} <= evidence.names_of("several")  # by what they are bound to
    assert {"Rget", "Win_fence"} <= evidence.names_of("onesided_epochs")  # by strings
    assert "Scatter" in evidence.names_of("random_blocks")  # of a module that it imports
    lines = {"exchanges --direct": "passed", "several": "failed", "bad_input": "passed"}
    tests = {f"t.py::test_program[{line}]": {"outcome": said} for line, said in lines.items()}
    (tmp_path / "some.json").write_text(json.dumps({"tests": tests}))
    monkeypatch.setattr(evidence, "MEASUREMENTS", tmp_path)
    monkeypatch.setattr(evidence, "TESTED", ("some.json",))
    assert evidence.passed("some.json") == ("exchanges",)
    assert (
        evidence.of("Alltoallw")
        == "tested on GPUs: [some.json](measurements/some.json), `exchanges`"
    )
    assert evidence.of("Testsome") == "simulator" and evidence.of("Isend").startswith("measured")
