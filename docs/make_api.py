"""Writes what docs say about each call, from the signatures and docstrings of the code.

    python docs/make_api.py            # writes
    python docs/make_api.py --check    # ends with 1 where a page is out of date

Run it after a call, a method, a setting or an error was added or got other words, in an environment
with GMPI and an MPI library (``.venv/mpich/bin/python``); a GPU is not needed. It writes all of
docs/reference.md, and in api.md, porting.md and maturity.md what stands between
``<!-- name: begin ... -->`` and ``<!-- name: end -->``. A test runs ``--check``. When both sides of
a merge have written the pages, take either and run it again.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import tables_of_calls  # noqa: E402

import gmpi  # noqa: E402
from docs.pages import fill  # noqa: E402
from gmpi.config import Config  # noqa: E402
from gmpi.host.calls import Host  # noqa: E402
from gmpi.host.persistent import HostPersistent  # noqa: E402
from gmpi.host.probes import HostMessage  # noqa: E402
from gmpi.host.requests import HostRequest  # noqa: E402
from gmpi.host.status import HostStatus  # noqa: E402

PROGRAM = "docs/make_api.py"
SUFFIXES = ("_warp", "_grid")
WIDTH = 100
SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")

Call = tuple[str, Callable[..., Any]]


# --- what there is --------------------------------------------------------------------------------


def calls() -> dict[str, list[Call]]:
    """The calls of kernels without suffix, by group, in the order of the source."""
    homes: dict[str, list[str]] = {}
    for name, home in gmpi._HOME.items():
        if re.match(r"GMPI_[A-Z][a-z]", name) and not name.endswith(SUFFIXES):
            homes.setdefault(home, []).append(name)
    groups: dict[str, list[Call]] = {}
    for home, names in homes.items():
        module = import_module(home)
        source = inspect.getsource(module)
        sections = [(m.start(), m[1]) for m in re.finditer(r"^# --- (.*?) -+$", source, re.M)]
        places = {name: _place(source, name) for name in names}
        for name in sorted(names, key=places.__getitem__):
            titles = [title for place, title in sections if place < places[name]]
            title = titles[-1] if titles else subject(module)
            groups.setdefault(title, []).append((name, getattr(gmpi, name)))
    return groups


def _place(source: str, name: str) -> int:
    """Where in its module a name is defined, or made of another."""
    found = re.search(rf"^(?:def {name}\(|{name} = )", source, re.M)
    if found is None:
        raise SystemExit(f"{name}: there is no such name where it comes from")
    return found.start()


def subject(module: ModuleType) -> str:
    """What a module's text says that its names are of."""
    words = " ".join((module.__doc__ or "").split())
    found = re.match(r"The names of (.*?)(?: that users import)?(?:[;.:] |\.$)", words)
    if not found:
        raise SystemExit(f"{module.__name__}: its text must begin with 'The names of ...;'")
    return found[1]


def twins(name: str) -> list[str]:
    return [name + suffix for suffix in SUFFIXES if name + suffix in gmpi._HOME]


def result(name: str, function: Callable[..., Any]) -> str:
    """What a call returns, in a word or two."""
    annotation = inspect.signature(function).return_annotation
    if typing.get_origin(annotation) is tuple:
        return ", ".join(part.__name__ for part in typing.get_args(annotation))
    text = (inspect.getdoc(function) or "").partition("Returns:")[2].strip()
    if annotation is int:
        if found := re.match(r"[Aa]s (GMPI_\w+)", text):
            return result(found[1], getattr(gmpi, found[1]))
        if text.startswith("The request"):
            return "request"
        if text.startswith(("Error class", "``gmpi.SUCCESS``")):
            return "error class"
    return str(annotation.__name__)


def parameters(function: Callable[..., Any]) -> str:
    """The names, with the defaults that the user may leave out in brackets."""
    text = ""
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        optional = parameter.default is not inspect.Parameter.empty
        comma = ", " if text else ""
        text += f"[{comma}{name}]" if optional else f"{comma}{name}"
    return text


# --- parts of pages ------------------------------------------------------------------------------


def listing() -> str:
    lines = []
    for title, members in calls().items():
        lines.append(f"\n# {title}")
        for name, function in members:
            head = f"{name}({parameters(function)})"
            indent = " " * (len(name) + 1)
            *first, last = textwrap.wrap(head, 80, subsequent_indent=indent)
            lines += [*first, f"{last:<78}  -> {result(name, function)}"]
    return "```text\n" + "\n".join(lines).strip() + "\n```"


def scopes() -> str:
    """Which calls have twins: of warps nearly all, so those that have none; of grids a few."""
    plain = [name for members in calls().values() for name, _ in members]
    alone = ", ".join(name for name in plain if name + "_warp" not in gmpi._HOME)
    grid = ", ".join(name + "_grid" for name in plain if name + "_grid" in gmpi._HOME)
    paragraphs = [
        f"Any thread calls these alone; all other calls above also exist with `_warp`: {alone}.",
        f"With `_grid` there are: {grid}.",
    ]
    return "\n\n".join("\n".join(textwrap.wrap(text, WIDTH)) for text in paragraphs)


def settings() -> str:
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in Config.model_fields.items():
        rows.append(f"| `{name}` | `{field.default!r}` | {field.description} |")
    return "\n".join(rows)


def porting() -> str:
    shown = {name: parameters(call) for members in calls().values() for name, call in members}
    return tables_of_calls.porting(list(shown), shown)


def maturity() -> str:
    return tables_of_calls.maturity([name for members in calls().values() for name, _ in members])


#: Page -> part -> what makes it.
PARTS = {
    "api.md": {"calls": listing, "scopes": scopes, "settings": settings},
    "porting.md": {"table": porting},
    "maturity.md": {"table": maturity},
}


def with_parts(name: str, page: str) -> str:
    for part, made in PARTS[name].items():
        page = fill(page, PROGRAM, part, made())
    return page


# --- docs/reference.md ----------------------------------------------------------------------------


def markdown(text: str) -> str:
    """A docstring in Google's style as Markdown."""
    out: list[str] = []
    section = ""
    for line in text.replace("``", "`").splitlines():
        if found := SECTION.match(line):
            section = found[1]
            out += [f"**{section}**", ""]
        elif section and line.startswith("    ") and line.strip():
            body = line[4:]
            item = (
                re.match(r"([\w.,* ]+?): (.*)|([\w.]+):$", body)
                if section not in ("Returns", "Yields")
                else None
            )
            if item and not body.startswith(" "):
                out.append(f"* `{item[1] or item[3]}`: {item[2] or ''}".rstrip())
            else:
                out.append(body if section in ("Returns", "Yields") else f"  {body.strip()}")
        else:
            if line and not line.startswith(" "):
                section = ""
            out.append(line)
    return "\n".join(out).strip()


def document(heading: str, signature: str, text: str) -> Iterator[str]:
    yield f"### {heading}"
    yield ""
    yield f"```text\n{signature}\n```"
    yield ""
    yield markdown(text)
    yield ""


def call_page(name: str, function: Callable[..., Any]) -> Iterator[str]:
    text = inspect.getdoc(function) or ""
    text = re.sub(r"^    ctx: .*\n", "", text, flags=re.M)  # said once
    text = re.sub(r"^    ctx, (\w+)", r"    \1", text, flags=re.M)
    text = re.sub(r"Args:\n\n", "", text)
    text, _, scope = text.rpartition("\n\nScope: ")
    also = [f"`{twin}`" for twin in twins(name)]
    scope = scope.strip().rstrip(".").replace(", with equal arguments", "")
    text += f"\n\nScope: {scope}." + (f" Also {', '.join(also)}." if also else "")
    head = "\n".join(
        textwrap.wrap(
            f"{name}({parameters(function)})", 86, subsequent_indent=" " * (len(name) + 1)
        )
    )
    yield from document(name, f"{head} -> {result(name, function)}", text)


def own(cls: type) -> list[str]:
    """Public names of a class, in the order of its source, those of its bases behind it."""
    names: dict[str, None] = {}
    for base in cls.__mro__:
        if base.__module__.startswith(("gmpi", "device_lib")):
            names.update(dict.fromkeys(name for name in vars(base) if name[0] != "_"))
    documented = (name for name in names if inspect.getdoc(getattr(cls, name)))
    return [name for name in documented if callable(getattr(cls, name)) or _is_property(cls, name)]


def _is_property(cls: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(cls, name), property)


def signature_of(head: str, function: Callable[..., Any]) -> str:
    """With defaults as the source has them: their values may be those of an MPI library."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    found = definition.args
    found.args = [argument for argument in found.args if argument.arg != "self"]
    for argument in (*found.args, *found.kwonlyargs, found.vararg, found.kwarg):
        if argument is not None:
            argument.annotation = None
    text = f"{head}({ast.unparse(found)})"
    return "\n".join(textwrap.wrap(text, 86, subsequent_indent="    "))


def class_page(variable: str, cls: type, names: list[str]) -> Iterator[str]:
    for name in names:
        member = getattr(cls, name)
        head = f"{variable}.{name}"
        shown = head if _is_property(cls, name) else signature_of(head, member)
        yield from document(head, shown, inspect.getdoc(member) or "")


def errors() -> Iterator[str]:
    known = [getattr(gmpi, name) for name in gmpi.__all__ if name.endswith(("Error", "Warning"))]
    for cls in sorted(known, key=lambda cls: len(cls.__mro__)):
        bases = ", ".join(base.__name__ for base in cls.__bases__)
        yield from document(cls.__name__, f"{cls.__name__}({bases})", inspect.getdoc(cls) or "")


def functions() -> list[str]:
    """Of the host; those of kernels besides the calls are in docs/api.md."""
    names = [name for name in gmpi.__all__ if name.islower() and name[0] != "_"]
    names += [name for name in gmpi.__all__ if re.match("Get_", name)]
    kernels = "device_lib.platform.primitives"
    found = [name for name in names if gmpi._HOME[name] != kernels]
    return [name for name in found if inspect.isfunction(getattr(gmpi, name))]


def reference() -> str:
    lines = [
        "# Reference",
        "",
        "<!-- Written by docs/make_api.py from the docstrings: change those, and run it. -->",
        "",
        "Each call, method and exception, with the words of its docstring; `help(gmpi.GMPI_Isend)`",
        "says the same. [api.md](api.md) is shorter, and says what holds for all of them.",
        "",
        "## Calls of kernels",
        "",
        "The first argument of each is `ctx`, which is `Context.device`, passed to the kernel.",
        "",
    ]
    for members in calls().values():
        for name, function in members:
            lines += call_page(name, function)
    lines += ["## Status", "", markdown(inspect.getdoc(gmpi.Status) or ""), ""]
    lines += [
        "## Context",
        "",
        f"```text\n{signature_of('gmpi.Context', gmpi.Context.__init__)}\n```",
        "",
    ]
    lines += [markdown(inspect.getdoc(gmpi.Context) or ""), ""]
    lines += class_page("g", gmpi.Context, own(gmpi.Context))
    lines += ["## Calls of the host", "", markdown(inspect.getdoc(Host) or ""), ""]
    lines += class_page("g.host", Host, own(Host))
    lines += ["## Requests and statuses of the host", ""]
    for variable, cls in (
        ("request", HostRequest), ("persistent", HostPersistent), ("message", HostMessage),
        ("status", HostStatus),
    ):  # fmt: skip
        lines += class_page(variable, cls, [name for name in own(cls) if name[0].isupper()])
    lines += ["## Functions", ""]
    for name in functions():
        function = getattr(gmpi, name)
        head = signature_of(f"gmpi.{name}", function)
        lines += document(f"gmpi.{name}", head, inspect.getdoc(function) or "")
    lines += ["## Exceptions", ""]
    lines += errors()
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    wanted = {HERE / name: with_parts(name, (HERE / name).read_text()) for name in PARTS}
    wanted[HERE / "reference.md"] = reference()
    old = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        names = ", ".join(f"docs/{path.name}" for path in old)
        if old:
            print(f"out of date: {names}; run python docs/make_api.py")
        return int(bool(old))
    for path in old:
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
