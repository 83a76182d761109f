"""What users install: an sdist and a wheel, used away from the checkout.

Once with what it depends on from the environment of the tests, so that no network is needed but for
the builder, and once with each Python that there is and everything installed anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import BytesParser
from pathlib import Path

import launcher
import pytest

import gmpi

pytestmark = [pytest.mark.mpi, pytest.mark.mpich]
BUILD = """
import os, sys
import hatchling.build as backend
os.chdir(sys.argv[1])
print(backend.build_sdist(sys.argv[2]), backend.build_wheel(sys.argv[2]))
"""


def python_of(version: str) -> str:
    """The program of a Python, on PATH or of pyenv; the test is skipped where there is none."""
    found = [shutil.which(f"python{version}")]
    found += map(str, (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for path in filter(None, found):
        tried = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
        if tried.returncode == 0:
            return path
    pytest.skip(f"no Python {version}")


def run(*command: object, timeout: float = 100, **environment: str) -> str:
    """What a command prints, away from the checkout: its packages would be found first."""
    status, text = launcher.start([str(c) for c in command], timeout, **environment)
    assert status == 0, text
    return text


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the programs are that build a package and check it: they stay out of environments."""
    path = str(tmp_path_factory.mktemp("tools"))
    project = tomllib.loads((launcher.ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], "twine>=6"]
    # tests/run.py puts uv there where it can be had: 0.7 s of processor time for 12.
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    pip = [uv, "pip"] if uv else [sys.executable, "-m", "pip"]
    python = ["--python", sys.executable] if uv else ["--no-compile"]
    status, text = launcher.start(
        [*pip, "install", *python, "--quiet", "--target", path, *wanted], 100
    )
    if status != 0:
        pytest.skip(f"no {', no '.join(wanted)} can be had: {text.strip().splitlines()[-1]}")
    return path


@pytest.fixture(scope="module")
def built(tools: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(sdist, the wheel that is made from it)."""
    where = tmp_path_factory.mktemp("built")
    run(sys.executable, "-c", BUILD, launcher.ROOT, where, PYTHONPATH=tools)
    (sdist,) = where.glob("*.tar.gz")
    with tarfile.open(sdist) as content:
        # Python 3.11.3 and before have no filters.
        content.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        content.extractall(where)
    source = where / sdist.name.removesuffix(".tar.gz")
    (where / "from sdist").mkdir()
    run(sys.executable, "-c", BUILD, source, where / "from sdist", PYTHONPATH=tools)
    (wheel,) = where.glob("from sdist/*.whl")
    return sdist, wheel


def test_the_wheel_has_the_packages_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(built[1]).namelist()
    tops = {name.partition("/")[0] for name in names}
    packages = {top for top in tops if not top.endswith(".dist-info")}
    assert packages == {"gmpi", "device_lib", "host_proxy"}
    for package in packages:
        paths = (launcher.ROOT / package).rglob("*.py")
        sources = {str(path.relative_to(launcher.ROOT)) for path in paths}
        assert sources <= set(names), sources - set(names)
    assert "gmpi/py.typed" in names and not any("__pycache__" in name for name in names)


def test_the_sdist_has_what_the_wheel_is_made_of(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "gmpi/__init__.py", "docs/api.md"} <= names
    assert not any(name.startswith((".ci", "docs/measurements")) for name in names)


def test_environments_that_pages_name_are_no_part_of_it() -> None:
    """The builder leaves out what git ignores: else an environment would be in the sdist."""
    pages = [launcher.ROOT / "README.md", launcher.ROOT / "docs" / "tutorial.md"]
    named = {name for p in pages for name in re.findall(r"-m venv ([\w.]+)", p.read_text())}
    assert named
    ignored = (launcher.ROOT / ".gitignore").read_text().splitlines()
    assert all(f"/{name}/" in ignored for name in named), named


def test_an_index_takes_and_shows_it(tools: str, built: tuple[Path, Path]) -> None:
    text = run(sys.executable, "-m", "twine", "check", "--strict", *built, PYTHONPATH=tools)
    assert text.count("PASSED") == 2, text
    with zipfile.ZipFile(built[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = BytesParser().parsebytes(wheel.read(name))
    assert metadata["Version"] == gmpi.__version__
    assert metadata["Author"] == "GMPI developers" and metadata["License-Expression"]
    page = str(metadata.get_payload())
    assert page.startswith("# GMPI") and "`docs/api.md`" in page
    assert "exchange[1, 128](g.device, send" in page  # this is no link
    # What leads nowhere from there:
    assert re.findall(r"\]\((?!https:)[^)\s]+\)", page) == []


def use(python: Path, mpiexec: Path | str, where: Path, **environment: str) -> None:
    """Runs the installed program, and an example on two ranks."""
    away = f"cd {where} && unset PYTHONPATH &&"
    line = f"{away} {python} -c 'import gmpi; print(gmpi.__file__)'"
    found = run("sh", "-c", line, **environment)
    assert str(python.parent.parent) in found, found
    shutil.copy(launcher.ROOT / "examples" / "hello.py", where)
    run("sh", "-c", f"{away} {python.parent / 'gmpi'} info", **environment)
    line = f"{away} {mpiexec} -n 2 {python} hello.py"
    assert run("sh", "-c", line, **environment).count("as expected") == 2


@pytest.mark.full  # the engine is compiled anew for it
def test_the_wheel_is_used(built: tuple[Path, Path], tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    own = venv / "bin" / "python"
    run(sys.executable, "-m", "venv", venv)
    run(own, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", built[1])
    # Behind its own packages, so that an editable install there is not what is found.
    (packages,) = (venv / "lib").glob("python*/site-packages")
    more = f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})"
    (packages / "zz_tests.pth").write_text(more)
    path = [str(Path(sys.prefix) / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]  # of MPI
    use(own, launcher.mpiexec(), tmp_path, LD_LIBRARY_PATH=os.pathsep.join(filter(None, path)))


@pytest.mark.full
@pytest.mark.parametrize("family", ["mpich", "openmpi"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_installed_where_there_is_nothing_else(
    version: str, family: str, built: tuple[Path, Path], tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    own = venv / "bin" / "python"
    run(python_of(version), "-m", "venv", venv)
    package = built[version == "3.13"]  # the sdist, or the wheel
    run(own, "-m", "pip", "install", "--quiet", f"{package}[{family}]", timeout=280)
    environment = {"PATH": os.pathsep.join([str(venv / "bin"), os.environ["PATH"]])}
    use(own, venv / "bin" / "mpiexec", tmp_path, **environment)
