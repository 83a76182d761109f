"""Two nodes on one machine: namespaces of Linux, joined by a virtual link.

Each has a host name, a network, processes and shared memory of its own. ``mpiexec`` runs on the
first one and starts ranks on both, through a program that takes the place of ssh.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

import launcher

_AGENT = """#!/bin/sh
# agent HOST COMMAND...: as ssh does it.
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
host=$1; shift
# No test's child, when the test is ended: --kill-child.
exec ip netns exec "$host" unshare --uts --ipc --mount --fork --kill-child \\
  sh -c 'hostname "$0" && mount --bind {hosts} /etc/hosts && mount -t tmpfs none /dev/shm &&
    exec sh -c "$1"' "$host" "$*"
"""
#: Options of mpiexec, by MPI family; {agent} and {hosts} are filled in.
_OPTIONS = {
    "mpich": "-launcher ssh -launcher-exec {agent} -hosts {hosts}",
    "openmpi": "--prtemca plm_ssh_agent {agent} --host {hosts} --map-by slot:nooversubscribe",
}
#: Its UCX, the default, loses receives from any source (docs/troubleshooting.md).
_ENVIRONMENT = {"mpich": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}, "openmpi": {}}

_DEVICE = "veth0"


class NoNodes(Exception):
    """This system cannot have them: why."""


def _ip(arguments: str, check: bool = True) -> str:
    try:
        done = subprocess.run(
            ["ip", *arguments.split()], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise NoNodes("there is no ip (Debian and Ubuntu: iproute2)") from None
    if check and done.returncode != 0:
        raise NoNodes(f"ip {arguments}: {done.stderr.strip()}")
    return done.stdout


def _await_link(name: str) -> None:
    """Waits until the link to the other node is up: a while after both ends are."""
    until = time.monotonic() + 10
    while "state UP" not in _ip(f"-n {name} -o link show {_DEVICE}"):
        if time.monotonic() > until:
            raise NoNodes(f"{_DEVICE} of {name} does not come up")
        time.sleep(0.05)


class TwoNodes:
    """For a ``with``; raises NoNodes where they cannot be made."""

    def __init__(self) -> None:
        self.names = [f"gmpi{os.getpid()}{letter}" for letter in "ab"]
        # 127 x 127 networks of two: those of another run are probably others.
        second, third = os.getpid() // 127 % 127, os.getpid() % 127
        self._network = f"10.{128 + second}.{128 + third}"

    def __enter__(self) -> TwoNodes:
        self._directory = tempfile.TemporaryDirectory(prefix="gmpi-nodes-")
        where = Path(self._directory.name)
        try:
            self._make(where)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for name in self.names:  # their ends of the link go with them
            _ip(f"netns delete {name}", check=False)
        self._directory.cleanup()

    def _make(self, where: Path) -> None:
        if not shutil.which("unshare"):
            raise NoNodes("there is no unshare (util-linux)")
        first, second = self.names
        for name in self.names:
            _ip(f"netns add {name}")
        _ip(f"link add {_DEVICE} netns {first} type veth peer name {_DEVICE} netns {second}")
        hosts = ["127.0.0.1 localhost"]
        for number, name in enumerate(self.names, 1):
            address = f"{self._network}.{number}"
            _ip(f"-n {name} address add {address}/24 dev {_DEVICE}")
            for device in (_DEVICE, "lo"):
                _ip(f"-n {name} link set {device} up")
            hosts.append(f"{address} {name}")
        for name in self.names:
            _await_link(name)
        (where / "hosts").write_text("\n".join(hosts) + "\n")
        self._agent = where / "agent"
        self._agent.write_text(_AGENT.format(hosts=where / "hosts"))
        self._agent.chmod(0o755)
        tried = [str(self._agent), first, "true"]
        done = subprocess.run(tried, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoNodes(f"no namespaces: {done.stderr.strip()}")

    def run(
        self, family: str, ranks: tuple[int, int], *arguments: str, timeout: float = 200,
        **environment: str,
    ) -> tuple[int, str]:  # fmt: skip
        """Runs a Python program on ranks of both nodes: exit status and output.

        Args:
            family: of the MPI library, key of _OPTIONS.
            ranks: how many on each node.
        """
        hosts = ",".join(f"{name}:{n}" for name, n in zip(self.names, ranks) if n)
        # By slot, as many as the host was said to have; Open MPI must be told that it may.
        options = _OPTIONS[family].format(agent=self._agent, hosts=hosts)
        # Both launchers hand on the environment that they find where they run.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {**_ENVIRONMENT[family], **environment, "PATH": path}
        command = [launcher.mpiexec(), *options.split(), "-n", str(sum(ranks)), sys.executable]
        line = shlex.join([*command, *arguments])
        return launcher.start([str(self._agent), self.names[0], line], timeout, **env)
