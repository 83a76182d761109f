"""Settings: what is wrong, its value, what is allowed, what to try."""

from __future__ import annotations

import sys
import types

import pytest

from gmpi import config
from gmpi.errors import ConfigError, GMPIError
from gmpi.observe.ranges import Ranges, domain_of

pytestmark = pytest.mark.quick

BAD = [
    ("ring_slots", 1000, "ring_slots must be a power of two from 64 to 1048576, got 1000"),
    (
        "ring_slots",
        1000,
        "try 1024",
    ),
    ("ring_slots", 32, "ring_slots must be a power of two from 64 to 1048576, got 32; try 64"),
    ("ring_slots", 1 << 21, "got 2097152; try 1048576"),
    ("ring_slots", -5, "got -5; try 64"),
    ("request_slots", 33, "request_slots must be a power of two from 32 to 32768, got 33; try 64"),
    ("request_slots", 65536, "got 65536; try 32768"),
    ("request_slots", 0, "got 0; try 32"),
    ("large_slots", 0, "large_slots is 0: input should be greater than or equal to 1"),
    ("large_slots", 65, "large_slots is 65: input should be less than or equal to 64"),
    ("eager_bytes", 1000, "eager_bytes must be a multiple of 128 from 256 to 1048576, got 1000"),
    ("eager_bytes", 1000, "try 1024"),
    ("eager_bytes", 128, "got 128; try 256"),
    ("chunk_bytes", 1 << 29, "from 512 to 268435456, got 536870912; try 268435456"),
    ("chunk_bytes", 100000, "got 100000; try 100096"),
    ("resource_timeout_s", 0, "resource_timeout_s is 0: input should be greater than 0"),
    ("resource_timeout_s", 4000, "resource_timeout_s is 4000: input should be less than"),
    ("sync_timeout_s", -1, "sync_timeout_s is -1: input should be greater than 0"),
    ("spin_ms", -1, "spin_ms is -1: input should be greater than or equal to 0"),
    ("yield_ms", "soon", "yield_ms is 'soon': input should be a valid number"),
    ("sleep_us", 0, "sleep_us is 0: input should be greater than 0"),
    ("cores", "two", "cores must be auto, any or a list such as 0,2-5, got 'two'"),
    ("cores", "3-1", "cores names no core: '3-1'"),
    ("flight_events", 100, "flight_events must be 0 or a power of two from 2 to 65536, got 100"),
    ("on_error", "ignore", "on_error is 'ignore': input should be 'raise', 'abort' or 'return'"),
    ("engine", "fast", "engine is 'fast': input should be 'compiled' or 'mpi4py'"),
    ("gpu_staging", 3, "gpu_staging is 3: input should be a valid boolean"),
    ("sim", "strickt", "sim must be empty, strict, or strict,seed=N, got 'strickt'"),
    ("sim", "strict,seed=x", "strict,seed=N, got 'strict,seed=x'"),
    ("sim", "strict,seed", "strict,seed=N, got 'strict,seed'"),
    ("sim", "seed=3", "sim must be empty, strict, or strict,seed=N, got 'seed=3'"),
    ("trace", -1, "trace is -1: input should be greater than or equal to 0"),
    ("trace", 99999999999, "trace is 99999999999: input should be less than or equal to 16777216"),
    ("spin_ms", 1e300, "spin_ms is 1e+300: input should be less than or equal to 1000000000"),
    ("spin_ms", float("inf"), "spin_ms is inf: input should be less than or equal to 1000000000"),
    ("yield_ms", 1e300, "yield_ms is 1e+300: input should be less than or equal to 1000000000"),
    ("yield_ms", float("nan"), "yield_ms is nan: input should be less than or equal to"),
    ("timeout_s", float("nan"), "timeout_s is nan: input should be"),
    ("watchdog_s", float("nan"), "watchdog_s is nan: input should be"),
    ("sync_timeout_s", float("nan"), "sync_timeout_s is nan: input should be"),
    ("cores", "0-99999999", "cores names core 99999999, allowed is 0..65535"),
    ("cores", "0-" + "9" * 50, "allowed is 0..65535"),
    ("ring_slot", 64, "there is no setting ring_slot; settings are engine, ring_slots"),
]


@pytest.mark.parametrize("name, value, message", BAD, ids=lambda v: str(v)[:20])
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(**{name: value})
    assert message in str(caught.value)
    assert isinstance(caught.value, GMPIError) and isinstance(caught.value, ValueError)


def test_a_bad_environment_variable_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMPI_RING_SLOTS", "100")
    with pytest.raises(ConfigError, match="ring_slots must be a power of two .* got 100; try 128"):
        config.load()


def test_argument_over_environment_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMPI_RING_SLOTS", "128")
    monkeypatch.setenv("GMPI_EAGER_BYTES", "512")
    found = config.load(ring_slots=256)
    assert (found.ring_slots, found.eager_bytes, found.request_slots) == (256, 512, 4096)
    origins = config.origins(found, ring_slots=256)
    assert origins["ring_slots"] == "argument"
    assert origins["eager_bytes"] == "environment"
    assert origins["request_slots"] == "default"


def test_environment_values_have_the_types_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"ENGINE": "mpi4py", "GPU_STAGING": "0", "SPIN_MS": "1.5"}.items():
        monkeypatch.setenv("GMPI_" + name, text)
    found = config.load()
    assert (found.engine, found.gpu_staging, found.spin_ms) == ("mpi4py", False, 1.5)


def test_an_unknown_variable_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMPI_RINGSLOTS", "64")
    with pytest.warns(UserWarning, match="variable GMPI_RINGSLOTS; .*did you mean GMPI_RING_SLOTS"):
        config.load()


@pytest.mark.filterwarnings("error")
def test_known_variables_are_not_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMPI_RING_SLOTS", "64")
    monkeypatch.setenv("GMPI_CACHE_DIR", "/nowhere")
    assert config.load().ring_slots == 64


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(Exception, match="frozen"):
        config.load().ring_slots = 64  # type: ignore[misc]


def test_every_setting_says_what_it_is() -> None:
    for name, field in config.Config.model_fields.items():
        assert field.description, name


@pytest.mark.parametrize(
    "text, cores", [("0", {0}), ("0,2-5", {0, 2, 3, 4, 5}), ("3-3", {3}), ("1,1", {1})]
)
def test_core_lists(text: str, cores: set[int]) -> None:
    assert config.parse_cores(text) == cores


@pytest.mark.parametrize("text", ["", ",", "a", "1-", "-1", "1--2", "1;2"])
def test_bad_core_lists(text: str) -> None:
    with pytest.raises(ValueError, match="such as 0,2-5|names no core"):
        config.parse_cores(text)


def test_nvtx_is_asked_for_where_a_profiler_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is imported where none does."""
    for name in ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "nvtx", None)  # not installed
    assert domain_of("auto") is None and domain_of("off") is None
    with pytest.raises(ConfigError, match="pip install nvtx"):
        domain_of("on")
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/a/library")
    assert domain_of("auto") is None
    package = types.ModuleType("nvtx")
    package.get_domain = {"gmpi": "ours"}.get  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", package)
    assert domain_of("auto") == domain_of("on") == "ours"
    assert domain_of("off") is None


def test_ranges_are_what_the_package_takes() -> None:
    ranges = Ranges(pytest.importorskip("nvtx").get_domain("gmpi"))
    with ranges.during("open"):
        ranges.launching("k")
    ranges.launched()
    ranges.launched()
