"""A server process under test, whoever wrote the server: start, wait, stop, kill -9, and what it cost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A TCP port nobody listens on now. Another process may take it; the caller starts its server at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, timeout: float, what: str, pause: float = 0.05):
    """Ask `condition` until it answers something true, and return that; say `what` was missing after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not so after {timeout:g} s")
        time.sleep(pause)


class ServerProcess:
    """One server process whose output goes to a file, so that a failing test can show it."""

    def __init__(self, log_file: Path):
        self.log_file = log_file
        self.process: subprocess.Popen | None = None

    def spawn(self, command: list[str], env: dict[str, str] | None = None) -> None:
        assert not self.running, "the server is already running"
        with open(self.log_file, "ab") as log:
            # PR_SET_PDEATHSIG would be stronger, but the fixtures stop what they start.
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server was never started"
        return self.process.pid

    def log_tail(self, lines: int = 40) -> str:
        text = self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def terminate(self, timeout: float) -> int:
        """SIGTERM, then the exit code. A process that outlives `timeout` is killed and the test fails."""
        if self.process is None:
            return 0
        if self.running:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"still running {timeout:g} s after SIGTERM; its log ends:\n{self.log_tail()}"
            ) from None

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        if self.running:
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def cpu_seconds(self) -> float:
        """User plus system time of the process so far, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("/proc has no VmRSS for the server")
