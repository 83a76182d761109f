"""``gmpi`` on the command line; also ``python -m gmpi``."""

from __future__ import annotations

import click

import gmpi
from gmpi.commands.bench import bench
from gmpi.commands.cache import cache
from gmpi.commands.cpp import cpp
from gmpi.commands.doctor import doctor
from gmpi.commands.info import info
from gmpi.commands.run import run
from gmpi.commands.show import SETTINGS, Commands, examples
from gmpi.commands.trace import trace
from gmpi.commands.tune import tune
from gmpi.commands.watching import hang, top


@click.group(
    cls=Commands,
    context_settings=SETTINGS,
    epilog=examples("gmpi doctor", "gmpi run -n 2 examples/hello.py", "gmpi COMMAND --help"),
)
@click.version_option(gmpi.__version__, prog_name="gmpi")
def main() -> None:
    """MPI called from inside a running GPU kernel."""


for command in (info, doctor, run, bench, tune, trace, hang, top, cache, cpp):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="gmpi")
