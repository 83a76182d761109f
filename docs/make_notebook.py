"""Writes docs/tutorial.ipynb from docs/tutorial.md.

    python docs/make_notebook.py            # writes
    python docs/make_notebook.py --check    # ends with 1 where it is out of date

A block of Python whose first line is ``# name.py`` becomes a cell that writes this file, and a
command that is marked ``<!-- run -->`` a cell that runs it. Everything else is text.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE / "tutorial.md"
NOTEBOOK = HERE / "tutorial.ipynb"
_CODE = re.compile(r"```python\n# (\w+\.py)\n(.*?)```\n|<!-- run -->\n```sh\n(.*?)```\n", re.S)


def cell(kind: str, text: str, number: int) -> dict[str, Any]:
    source = text.strip("\n").splitlines(keepends=True)
    made: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        made |= {"execution_count": None, "outputs": []}
    return made | {"source": source}


def text_of(page: str) -> str:
    """Without comments, and without the link to the notebook itself."""
    page = re.sub(r"<!--.*?-->\n", "", page, flags=re.S)
    return page.replace("The page is also a [notebook](tutorial.ipynb).\n\n", "")


def notebook(page: str) -> str:
    parts: list[tuple[str, str]] = []
    end = 0
    for found in _CODE.finditer(page):
        parts.append(("markdown", text_of(page[end : found.start()])))
        name, program, command = found.groups()
        code = f"%%writefile {name}\n{program}" if name else f"!{command.strip()}"
        parts.append(("code", code))
        end = found.end()
    parts.append(("markdown", text_of(page[end:])))
    cells = [cell(kind, text, k) for k, (kind, text) in enumerate(p for p in parts if p[1].strip())]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    wanted = notebook(PAGE.read_text())
    current = NOTEBOOK.exists() and NOTEBOOK.read_text() == wanted
    if "--check" in sys.argv[1:]:
        if not current:
            print("docs/tutorial.ipynb is out of date; run python docs/make_notebook.py")
        return int(not current)
    NOTEBOOK.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
