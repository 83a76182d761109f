"""The documentation site: the Markdown pages as they are, put in order.

    pip install ".[docs]"
    python -m sphinx -W -b html -c docs . build/site     # then open build/site/index.html

Sources are the pages of the whole repository, so that their links to each other and to files are
the same here as where they are read as plain Markdown. Nothing is imported: neither CUDA nor MPI is
needed. The order stands here and not in the pages, where it would be a block of code to whoever
reads them as they are. A page of docs/ that is not named here comes last in the reference.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

project = "GMPI"
author = "GMPI developers"
copyright = "GMPI developers, BSD-3-Clause"
(release,) = re.findall(r'^__version__ = "(.*)"', (ROOT / "gmpi" / "__init__.py").read_text(), re.M)
version = release

extensions = ["myst_parser", "sphinx_copybutton"]
highlight_language = "none"  # of blocks that name no language
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "examples/README.md",
    "benchmarks/**.md",
]
exclude_patterns = [".*", "build", "dist", "gmpi", "host_proxy", "device_lib", "tests"]
myst_heading_anchors = 4
nitpicky = True

html_theme = "pydata_sphinx_theme"
html_title = f"GMPI {release}"
html_extra_path = ["site"]  # index.html, which leads to docs/index.html
html_static_path = ["static"]
html_css_files = ["gmpi.css"]
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}  # without it, the theme complains in the browser
html_theme_options = {
    "logo": {"text": "GMPI"},
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 1,
    "footer_start": ["copyright"],
    "footer_end": [],
}

#: Page -> (title in menus or "", page) below it.
ORDER: dict[str, list[tuple[str, str]]] = {
    "docs/index": [
        ("Tutorial", "docs/tutorial"),
        ("How-to", "docs/howto/index"),
        ("Reference", "docs/api"),
        ("Explanation", "docs/explanation"),
        ("Performance", "docs/measuring"),
        ("Troubleshooting", "docs/troubleshooting"),
        ("Contributing", "CONTRIBUTING"),
    ],
    "docs/tutorial": [("What GMPI is: the README", "README")],
    "docs/howto/index": [
        ("", f"docs/howto/{name}")
        for name in (
            "halo",
            "reductions",
            "overlap",
            "communicators",
            "datatypes",
            "partitioned",
            "porting",
            "slurm",
            "containers",
            "mps",
            "cpp",
        )
    ],
    "docs/api": [
        ("", "docs/reference"),
        ("", "docs/operations"),
        ("", "docs/datatypes"),
        ("", "docs/porting"),
        ("", "docs/maturity"),
        ("", "docs/glossary"),
    ],
    "docs/explanation": [
        ("", "docs/design"),
        ("", "docs/direct"),
        ("", "docs/direct_speed"),
        ("", "docs/direct_history"),
        ("", "docs/grids"),
        ("", "docs/compare"),
        ("", "docs/front_ends"),
        ("", "docs/applications"),
        ("", "docs/papers"),
        ("", "docs/himeno"),
    ],
    "docs/troubleshooting": [("", "docs/strict")],
    "docs/measuring": [
        ("", "docs/scaling"),
        ("", "benchmarks/README"),
        ("", "benchmarks/himeno/README"),
        ("", "docs/measurements/README"),
    ],
    "CONTRIBUTING": [
        ("", "docs/testing"),
        ("", "examples/README"),
        ("", "SECURITY"),
        ("", "CHANGELOG"),
    ],
}


def ordered() -> dict[str, list[tuple[str, str]]]:
    """ORDER, with the pages of the how-to folder, and those that nobody has put anywhere."""
    order = {page: list(below) for page, below in ORDER.items()}
    known = {page for below in order.values() for _, page in below} | set(order)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.relative_to(ROOT).with_suffix("").as_posix()
        if page not in known:
            parent = "docs/howto/index" if page.startswith("docs/howto/") else "docs/api"
            order[parent].append(("", page))
    return order


def add_order(app: Any, page: str, source: list[str]) -> None:
    below = ordered().get(page, [])
    if below:
        entries = [f"{title} <{root(name)}>" if title else root(name) for title, name in below]
        source[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"


def root(page: str) -> str:
    return f"/{page}"


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", add_order)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
