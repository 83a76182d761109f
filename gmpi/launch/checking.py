"""Strict mode of a context: the simulator finds mistakes of its kernels (docs/strict.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_lib.platform.primitives import SIMULATOR
from gmpi.config import Config, parse_sim
from gmpi.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from gmpi.context import Context


def settings(config: Config, kernels: bool) -> Config:
    """The settings of a context with strict mode: every message goes by MPI, which alone has sends
    that are complete no earlier than they must be.

    Raises:
        ConfigError: kernels would run on a GPU.
    """
    if parse_sim(config.sim) is None:
        return config
    if kernels and not SIMULATOR:
        raise ConfigError(
            f"sim is {config.sim!r}, but kernels run on a GPU: allowed in the simulator only; set "
            "NUMBA_ENABLE_CUDASIM=1, or unset GMPI_SIM"
        )
    return config.model_copy(update={"road": "proxied"})


def start(context: Context) -> None:
    """From now on kernels are checked, if the context's settings say so."""
    seed = parse_sim(context.config.sim)
    if seed is None or not SIMULATOR:
        return
    from device_lib import strict
    from device_lib.strict.checker import World

    datatypes, state = context._datatypes, context._state

    def runs(handle: int, count: int) -> tuple[np.ndarray, np.ndarray] | None:
        plan = datatypes.plans.get(handle)
        return None if plan is None else plan.runs(count)

    def members(comm: int) -> tuple[int, int] | None:
        if not 0 <= comm < len(state.communicators):
            return None
        found = state.communicators[comm].messages
        return found.Get_rank(), found.Get_size()

    strict.start(World(context.rank, seed, runs, members))


def stop() -> None:
    """From now on kernels are not checked."""
    if SIMULATOR:
        from device_lib.simulator import kernels

        kernels.check_with(None)
