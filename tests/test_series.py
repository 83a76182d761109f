"""Programs that share one start of MPI fail one by one, each with its name and output."""

from __future__ import annotations

from pathlib import Path

import launcher
import pytest
from series import Program, Series

pytestmark = [pytest.mark.mpi, pytest.mark.openmpi]

SOURCES = {
    "good": "print('from good', *sys.argv[1:]); end()",
    "fails": "print('from fails'); assert RANK == 0, 'of the test'; end()",
    "hangs": "print('from hangs')\nif RANK == 1: WORLD.Recv(bytearray(1), 0)\nend()",
    "ends early": "sys.exit(0)",
    "dies": "os._exit(3 * RANK)",
    "settings": "assert os.environ['GMPI_ENGINE'] == 'mpi4py'; end()",
    "no settings": "assert 'GMPI_ENGINE' not in os.environ; end()",
}


def test_each_program_has_its_own_result(tmp_path: Path) -> None:
    for name, source in SOURCES.items():
        start = "import os, sys\nfrom common import RANK, WORLD, end\n"
        (tmp_path / f"{name}.py").write_text(start + source)

    def program(name: str, *arguments: str, limit_s: float = 100, **settings: str) -> Program:
        path = str(tmp_path / name)
        return Program(2, path, arguments, tuple(settings.items()), limit_s / launcher.TIME_FACTOR)

    good, again, last = (program("good", word) for word in ("first", "again", "last"))
    wrong = {
        program("fails"): ["rank 1 of 2 failed", "AssertionError: of the test", "from fails"],
        program("hangs", limit_s=8): ["hangs on 2 ranks", "Timeout (0:00:05)", "from hangs"],
        program("ends early"): ["ends early on 2 ranks: exit 0"],
        program("dies"): ["dies on 2 ranks: exit "],
    }
    alike = [program("settings", GMPI_ENGINE="mpi4py"), program("no settings")]
    one = good._replace(ranks=1)
    fails, *others = wrong
    in_order = [good, *alike, fails, again, *others, last]
    with Series([*in_order, one]) as series:
        for each in [one, *in_order]:
            if each in wrong:
                with pytest.raises((pytest.fail.Exception, AssertionError)) as caught:
                    series.check(each)
                for words in wrong[each]:
                    assert words in str(caught.value)
                assert "from good" not in str(caught.value)
            else:
                series.check(each)
