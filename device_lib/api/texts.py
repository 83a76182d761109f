"""Words that many calls share: each call's text has them, ``help()`` and docs/reference.md, too.

Where a call's own text describes arguments, those that it leaves out and that mean the same in all
calls are described here; so is what it returns, where that is an error class and no more.
"""

from __future__ import annotations

import inspect
import re

#: What an argument is, by its name.
ARGUMENTS = {
    "ctx": "``Context.device``, passed to the kernel.",
    "datatype": "a constant such as ``gmpi.FLOAT``, or a handle of ``Context.commit()``.",
    "dest": "rank in ``comm``, or ``gmpi.PROC_NULL``.",
    "root": "rank in ``comm``, equal on all ranks.",
    "tag": "0 .. MPI_TAG_UB.",
    "comm": "``gmpi.COMM_WORLD``, or a handle that ``Context.comm()`` returned.",
    "target_rank": "rank of the window, or ``gmpi.PROC_NULL``.",
    "target_disp": "where in the target's window, in its displacement units.",
    "win": "a handle that ``Context.win()`` returned.",
}
_RETURNS = "Returns:\n    Error class, ``gmpi.SUCCESS`` when all is well."
_ITEM = re.compile(r"    (\w[\w, ]*): ")


def completed(text: str, signature: inspect.Signature, scope: str) -> str:
    """A call's text, with what all such calls have in common.

    Args:
        scope: of the call; empty: any thread makes it, and what it returns is its own affair.
    """
    before, found, rest = text.partition("\nArgs:\n")
    if found:
        items, gap, after = rest.partition("\n\n")
        text = f"{before}\nArgs:\n{_all_items(items, signature)}{gap}{after}"
    elif not re.search("^Args", text, re.M) and signature.parameters.keys() <= ARGUMENTS.keys():
        before, gap, after = text.partition("\n\nReturns:")
        text = f"{before}\n\nArgs:\n{_all_items('', signature)}{gap}{after}"
    if (
        scope
        and signature.return_annotation is int
        and not re.search("^(Args, )?Returns:", text, re.M)
    ):
        text = f"{text}\n\n{_RETURNS}"
    return text


def _all_items(items: str, signature: inspect.Signature) -> str:
    """The lines of all arguments, in the order of the call."""
    own: dict[str, list[str]] = {}  # by the first of the arguments that it is about
    described: set[str] = set()
    for line in items.splitlines():
        if match := _ITEM.match(line):
            names = match[1].split(", ")
            described.update(names)
            own[names[0]] = [line]
        else:
            next(reversed(own.values())).append(line)
    lines: list[str] = []
    for name in signature.parameters:
        if name in own:
            lines += own[name]
        elif name not in described and name in ARGUMENTS:
            lines.append(f"    {name}: {ARGUMENTS[name]}")
    return "\n".join(lines)
