"""Settings of a context, in one frozen object.

Each one can be given as an argument of ``Context``, else as an environment variable ``GMPI_NAME``,
else it has what ``gmpi tune`` has found on this machine, else its default. ``gmpi info`` shows
every value and where it came from.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from gmpi.contract.wire import BUSY_BITS, MAX_EAGER_BYTES, MAX_REQUEST_SLOTS, POSITION_STEP
from gmpi.errors import ConfigError

PREFIX = "GMPI_"
#: Variables that are read elsewhere: where compiled device code is kept; what benchmarks note.
OTHER_VARIABLES = frozenset({"GMPI_CACHE_DIR", "GMPI_COMMIT", "GMPI_RUN", "GMPI_TEST_NODES"})


class Config(BaseModel):
    """Sizes, timing and behaviour of one context."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Literal["compiled", "mpi4py"] = Field(
        "compiled", description="which engine makes the MPI calls"
    )
    ring_slots: int = Field(4096, description="records that may be under way at once")
    request_slots: int = Field(4096, description="requests up to eager_bytes open at once")
    large_slots: int = Field(32, ge=1, le=64, description="larger requests at full speed at once")
    eager_bytes: int = Field(8192, description="longest message that is staged as a whole")
    chunk_bytes: int = Field(524288, description="longest chunk of a larger message")
    resource_timeout_s: float = Field(
        5.0, gt=0, le=3600, description="how long a call waits for a free request slot"
    )
    sync_timeout_s: float = Field(
        30.0, gt=0, description="how long synchronize() waits for requests of ended kernels"
    )
    spin_ms: float = Field(
        50.0, ge=0, le=1e9, description="idle time before the proxy yields its core"
    )
    yield_ms: float = Field(50.0, ge=0, le=1e9, description="idle time after that before it naps")
    sleep_us: float = Field(95.0, gt=0, le=10000, description="length of a nap")
    cores: str = Field(
        "auto",
        description="where the proxy runs: auto (near the GPU), any, or a list such as 0,2-5",
    )
    watchdog_s: float = Field(
        30.0, ge=0, description="time without progress until a report says why; 0: never"
    )
    timeout_s: float = Field(
        0.0, ge=0, description="time without progress until waits return GMPI_ERR_TIMEOUT; 0: never"
    )
    on_error: Literal["raise", "abort", "return"] = Field(
        "raise",
        description="what a failed call does to the host: raise, abort the job, or only return",
    )
    gpu_staging: bool = Field(
        True, description="whether GPUs of one node read long messages from each other's memory"
    )
    road: Literal["direct", "proxied"] = Field(
        "direct",
        description="direct: GPUs of one node write into each other's memory, where no receive "
        "uses wildcards; proxied: every message goes by MPI",
    )
    check_grid: bool = Field(True, description="refuse grids that cannot be resident as a whole")
    flight_events: int = Field(
        256, description="events of the proxy that reports list; a power of two, or 0"
    )
    debug: bool = Field(False, description="checks of buffers, records and staging; slow")
    sim: str = Field(
        "",
        description="what else the simulator does: strict or strict,seed=N finds mistakes of "
        "kernels",
    )
    trace: int = Field(0, ge=0, le=1 << 24, description="requests to keep time stamps of")
    trace_file: str = Field(
        "", description="where each rank writes its trace when the context closes; empty: nowhere"
    )

    nvtx: Literal["auto", "on", "off"] = Field(
        "auto",
        description="NVTX ranges of host calls and launches; auto: where a profiler listens, and "
        "the package nvtx is installed",
    )

    @field_validator("ring_slots", "request_slots")
    @classmethod
    def _power_of_two(cls, value: int, info: ValidationInfo) -> int:
        low, high = BUSY_BITS, MAX_REQUEST_SLOTS
        if info.field_name == "ring_slots":
            low, high = 64, 1 << 20
        if not low <= value <= high or value & (value - 1):
            near = min(high, max(low, 1 << max(0, value - 1).bit_length()))
            raise ValueError(
                f"must be a power of two from {low} to {high}, got {value}; try {near}"
            )
        return value

    @field_validator("flight_events")
    @classmethod
    def _events(cls, value: int) -> int:
        if value and (not 2 <= value <= 65536 or value & (value - 1)):
            near = min(65536, max(2, 1 << max(0, value - 1).bit_length()))
            raise ValueError(
                f"must be 0 or a power of two from 2 to 65536, got {value}; try {near}"
            )
        return value

    @field_validator("eager_bytes", "chunk_bytes")
    @classmethod
    def _multiple(cls, value: int, info: ValidationInfo) -> int:
        low, high = (256, MAX_EAGER_BYTES) if info.field_name == "eager_bytes" else (512, 1 << 28)
        if not low <= value <= high or value % POSITION_STEP:
            near = min(high, max(low, -(-value // POSITION_STEP) * POSITION_STEP))
            raise ValueError(
                f"must be a multiple of {POSITION_STEP} from {low} to {high}, got {value}; "
                f"try {near}"
            )
        return value

    @field_validator("sim")
    @classmethod
    def _simulation(cls, value: str) -> str:
        parse_sim(value)
        return value

    @field_validator("cores")
    @classmethod
    def _core_list(cls, value: str) -> str:
        if value not in ("auto", "any"):
            parse_cores(value)
        return value


def parse_sim(text: str) -> int | None:
    """The seed of strict mode; None: it is off."""
    if not text:
        return None
    mode, comma, seed = text.partition(",")
    name, _, number = seed.partition("=")
    if mode != "strict" or (comma and (name != "seed" or not number.isdecimal())):
        raise ValueError(f"must be empty, strict, or strict,seed=N, got {text!r}")
    return int(number) if comma else 0


_LAST_CORE = 65535  # Linux has fewer


def parse_cores(text: str) -> frozenset[int]:
    """The cores of a list such as ``0,2-5``."""
    cores: set[int] = set()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            begin, end = int(first), int(last if dash else first)
            if max(begin, end) > _LAST_CORE:
                raise ValueError(f"names core {max(begin, end)}, allowed is 0..{_LAST_CORE}")
            cores.update(range(begin, end + 1))
    except ValueError as exc:
        if "names core" in str(exc):
            raise
        raise ValueError(f"must be auto, any or a list such as 0,2-5, got {text!r}") from None
    if not cores:
        raise ValueError(f"names no core: {text!r}")
    return frozenset(cores)


def _names(name: str, known: list[str]) -> str:
    """The names that exist, and the one that ``name`` is probably meant to be."""
    close = difflib.get_close_matches(name, known, n=1)
    return ", ".join(known) + (f"; did you mean {close[0]}?" if close else "")


def load(tuned: Mapping[str, Any] = MappingProxyType({}), /, **arguments: Any) -> Config:
    """The settings for a context.

    Args:
        tuned: what counts where neither an argument nor the environment says otherwise.

    Raises:
        ConfigError: naming the setting, its value and what is allowed.
    """
    known = {PREFIX + name.upper() for name in Config.model_fields} | OTHER_VARIABLES
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known:
            names = _names(name, sorted(known))
            warnings.warn(f"unknown environment variable {name}; known are {names}", stacklevel=3)
    # By hand: pydantic-settings takes a tenth of the time that a rank needs to start.
    given = {name: os.environ.get(PREFIX + name.upper()) for name in Config.model_fields}
    found = {name: value for name, value in given.items() if value is not None}
    try:
        return Config(**{**tuned, **found, **arguments})
    except ValidationError as exc:
        first = exc.errors()[0]
        name = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            names = _names(name, list(Config.model_fields))
            raise ConfigError(f"there is no setting {name}; settings are {names}") from None
        if first["type"] != "value_error":
            reason = f"is {first['input']!r}: {reason[0].lower()}{reason[1:]}"
        raise ConfigError(f"{name} {reason}") from None


def origins(
    config: Config, tuned: Mapping[str, Any] = MappingProxyType({}), /, **arguments: Any
) -> dict[str, str]:
    """Where each value came from: ``argument``, ``environment``, ``gmpi tune`` or ``default``."""
    found = {}
    for name in Config.model_fields:
        if name in arguments:
            found[name] = "argument"
        elif PREFIX + name.upper() in os.environ:
            found[name] = "environment"
        elif name in tuned:
            found[name] = "gmpi tune"
        else:
            found[name] = "default"
    return found
