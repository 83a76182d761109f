"""What the commands share: JSON or tables, examples in ``--help``, wrong use in one line."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
from tabulate import tabulate

Command = TypeVar("Command", bound=Callable[..., Any])

#: ``-h`` beside ``--help``, for each command.
SETTINGS = {"help_option_names": ["-h", "--help"]}
_LEAST = 20  # characters of a column that is folded


def as_json(command: Command) -> Command:
    """The option that every command has: its argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="For machines.")(command)


def examples(*lines: str) -> str:
    """The end of a ``--help``, kept line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def emit(facts: Any, as_json: bool, text: Callable[[Any], str]) -> None:
    """Prints facts: as JSON, or as the text that ``text`` makes of them."""
    click.echo(json.dumps(facts, indent=1) if as_json else text(facts))


def good(text: str) -> str:
    return click.style(text, fg="green")


def bad(text: str) -> str:
    return click.style(text, fg="red")


def odd(text: str) -> str:
    """What is worth a look."""
    return click.style(text, fg="yellow")


def section(title: str, text: str) -> str:
    """A part of a page, under a heading."""
    return f"{click.style(title, bold=True)}\n{'-' * len(title)}\n{text}"


def pairs(rows: Iterable[Sequence[Any]]) -> str:
    """Two columns: names and what they are."""
    return str(tabulate(list(rows), tablefmt="plain", disable_numparse=True))


def table(rows: Sequence[Any], headers: Sequence[str] | str = "keys", numbers: bool = True) -> str:
    """A table; on a terminal its last column is folded so that lines fit."""
    width: list[int | None] | None = None
    if sys.stdout.isatty() and rows and not isinstance(headers, str):
        used = 0
        for i, header in enumerate(headers[:-1]):
            used += 2 + max(len(header), *(len(click.unstyle(str(row[i]))) for row in rows))
        left = max(_LEAST, shutil.get_terminal_size().columns - used)
        width = [*[None] * (len(headers) - 1), left]
    return str(tabulate(rows, headers, disable_numparse=not numbers, maxcolwidths=width))


def in_one_line(exc: click.ClickException, path: str) -> str:
    """What was wrong, and where to look: at the help of the command ``path``."""
    text = " ".join(exc.format_message().split()).rstrip(".")
    if isinstance(exc, click.UsageError):
        text += f"; {path} --help has an example"
    return f"Error: {text}"


class Commands(click.Group):
    """A group that says in one line what was wrong; click prints the usage before it."""

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            status = super().main(args, prog_name, complete_var, False, **extra)
        except click.ClickException as exc:
            if isinstance(exc, getattr(click.exceptions, "NoArgsIsHelpError", ())):
                exc.show()
            else:
                path = self._path(exc, sys.argv[1:] if args is None else args)
                click.echo(in_one_line(exc, path), err=True)
            sys.exit(exc.exit_code)
        except click.Abort:
            sys.exit(130)
        except OSError as exc:
            if exc.errno != errno.EPIPE:
                raise
            sys.stdout = sys.stderr = None  # type: ignore[assignment]  # nobody reads any more
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)

    def _path(self, exc: click.ClickException, args: Sequence[str]) -> str:
        """Which command was wrongly used; click does not always say."""
        if isinstance(exc, click.UsageError) and exc.ctx is not None:
            return exc.ctx.command_path
        command: click.Command | None = self
        path = "gmpi"
        for word in args:
            command = command.commands.get(word) if isinstance(command, click.Group) else None
            if command is None:
                break
            path += f" {word}"
        return path
