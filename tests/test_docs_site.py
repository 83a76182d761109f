"""The documentation site: built without a warning, with every page in its menus."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import launcher
import pytest

DOCS = launcher.ROOT / "docs"
CITATION = launcher.ROOT / "CITATION.cff"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip('no Sphinx: pip install ".[docs]"')
    where = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-c", str(DOCS), str(launcher.ROOT), str(where)]
    # Neither may be needed: documentation is built where there is no MPI and no CUDA.
    nowhere = {"MPI4PY_LIBMPI": "/nowhere/libmpi.so", "NUMBA_ENABLE_CUDASIM": "0"}
    status, text = launcher.start(command, 200, **nowhere)
    assert status == 0, text
    return where


class Links(HTMLParser):
    """Targets of all links of a page, and the names of its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.names.add(value)
            if name == ("href" if tag == "a" else "src") and value:
                self.targets.append(value)


def test_every_page_is_there_and_can_be_reached(site: Path) -> None:
    sources = {path.relative_to(launcher.ROOT) for path in DOCS.rglob("*.md")}
    missing = [path for path in sources if not (site / path.with_suffix(".html")).exists()]
    assert len(sources) > 20 and missing == []
    reached, waiting = set(), [site / "index.html", site / "docs" / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = (target.partition("#")[0] for target in Links(page).targets)
        near = [target for target in targets if target.endswith(".html") and ":" not in target]
        waiting += [(page.parent / target).resolve() for target in near]
    assert {site / path.with_suffix(".html") for path in sources} <= reached


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    found = [path for path in site.rglob("*.html") if "_static" not in path.parts]  # templates
    pages = {path: Links(path) for path in found}
    for page, links in pages.items():
        for target in links.targets:
            name, _, anchor = target.partition("#")
            if re.match(r"\w+:", target) or name.startswith("//"):
                continue
            path = (page.parent / name.partition("?")[0]).resolve() if name else page
            assert path.exists(), (page, target)
            if anchor and path in pages:
                assert anchor in pages[path].names, (page, target)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img)[^>]* src="(https?:[^"]*)"', page.read_text())
        loaded += re.findall(
            r'<link[^>]*rel="stylesheet"[^>]* href="(https?:[^"]*)"', page.read_text()
        )
        assert loaded == [], page


def test_the_notebook_is_that_of_the_tutorial() -> None:
    status, text = launcher.start([sys.executable, "docs/make_notebook.py", "--check"], 60)
    assert status == 0, text


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.mpich
def test_the_notebook_runs(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tools)]
    status, text = launcher.start([*pip, "nbclient>=0.10", "ipykernel>=6.29"], 200)
    if status != 0:
        pytest.skip(f"no nbclient can be had: {text.strip().splitlines()[-1]}")
    program = """
import json, sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
where = {"metadata": {"path": sys.argv[2]}}
nbclient.NotebookClient(notebook, timeout=300, resources=where).execute()
print(json.dumps([o.get("text", "") for c in notebook.cells for o in c.get("outputs", [])]))
"""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-c", program, str(DOCS / "tutorial.ipynb"), str(tmp_path)]
    more = {"PATH": path, "PYTHONPATH": str(tools), "JUPYTER_PLATFORM_DIRS": "1"}
    status, text = launcher.start(command, 250, **more)
    assert status == 0, text
    printed = "".join(json.loads(text.strip().splitlines()[-1]))
    for line in (
        "rank 0 received [10. 11. 12. 13.]",
        "rank 1: 10 steps, as on the host",
        "rank 0: the sum of all is 2016",
        "dest is 99, allowed is",
    ):
        assert line in printed, printed


def test_who_cites_it_cites_what_is_there() -> None:
    yaml = pytest.importorskip("yaml", reason='no PyYAML: pip install ".[docs]"')
    citation = yaml.safe_load(CITATION.read_text())
    project = tomllib.loads((launcher.ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["authors"] == project["authors"]
    assert citation["license"] == project["license"]
    assert "version" not in citation  # it has one place, gmpi/__init__.py
