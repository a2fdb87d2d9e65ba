"""A real `weir serve` on free ports in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path

from .process import ServerProcess, free_port, wait_until

READY = re.compile(r"^weir ready kafka=(\S+) http=(\S+) flight=(\S+)$", re.MULTILINE)


def weir_binary() -> Path:
    """`COMPAT_BROKER` (not WEIR_..., which the broker takes for a config), or the release build in the target folder that the Makefile uses."""
    if path := os.environ.get("COMPAT_BROKER"):
        return Path(path)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    target = os.environ.get("CARGO_TARGET_DIR") or f"{cache}/weir/target"
    return Path(target) / "release" / "weir"


class HttpError(AssertionError):
    def __init__(self, method: str, path: str, status: int, body: str):
        super().__init__(f"{method} {path} answered {status}: {body}")
        self.status, self.body = status, body


class Broker(ServerProcess):
    """Start it, restart it on the same ports and data, kill it -9, and ask it things over HTTP.

    `settings` become `--set NAME=VALUE`. Ports are chosen once, so that clients find the broker again after a restart.
    """

    peer = "weir"

    def __init__(self, folder: Path, settings: dict[str, str] | None = None):
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "weir.log")
        self.data = folder / "data"
        self.settings = dict(settings or {})
        self.kafka_port, self.http_port = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self.kafka_port}"
        self.http = f"http://127.0.0.1:{self.http_port}"

    # -- life -----------------------------------------------------------------

    def command(self) -> list[str]:
        command = [
            str(weir_binary()),
            "serve",
            "--data",
            str(self.data),
            "--kafka",
            self.bootstrap,
            "--http",
            f"127.0.0.1:{self.http_port}",
        ]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def start(self, timeout: float = 30) -> "Broker":
        """Run `weir serve` and wait for its ready line."""
        seen = self.log_file.stat().st_size if self.log_file.exists() else 0
        self.spawn(self.command())

        def ready():
            with open(self.log_file, "rb") as log:
                log.seek(seen)
                if match := READY.search(log.read().decode(errors="replace")):
                    return match
            if not self.running:
                raise AssertionError(f"weir exited with {self.process.returncode} at start:\n{self.log_tail()}")
            return None

        match = wait_until(ready, timeout, "the ready line of weir serve", pause=0.005)
        assert match.group(1) == self.bootstrap, f"the ready line names {match.group(1)}, asked for {self.bootstrap}"
        return self

    def stop(self, timeout: float = 10) -> None:
        """SIGTERM; weir must exit 0 within seconds."""
        code = self.terminate(timeout)
        assert code == 0, f"weir exited with {code} on SIGTERM; its log ends:\n{self.log_tail()}"

    def restart(self) -> "Broker":
        self.stop()
        return self.start()

    def kill_and_restart(self, timeout: float = 60) -> "Broker":
        self.kill()
        return self.start(timeout)

    # -- HTTP -----------------------------------------------------------------

    def request(self, method: str, path: str, timeout: float = 300) -> str:
        request = urllib.request.Request(self.http + path, method=method, data=b"" if method == "POST" else None)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise HttpError(method, path, error.code, error.read().decode(errors="replace")) from None

    def seal(self, topic: str) -> None:
        """Turn the whole tail of the topic into segments, now."""
        self.request("POST", f"/api/v1/tables/{topic}/seal")

    def tier(self, topic: str) -> None:
        """Pour everything visible into the lake, now."""
        self.request("POST", f"/api/v1/tables/{topic}/tier")

    def table(self, topic: str) -> dict:
        return json.loads(self.request("GET", f"/api/v1/tables/{topic}"))

    def partitions(self, topic: str) -> list[dict]:
        """Per partition: where log, lake, segments and tail begin and end."""
        return self.table(topic)["partitions"]

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics: `name{labels}` -> value."""
        samples = {}
        for line in self.request("GET", "/metrics").splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples called `name` whose labels include `labels`."""
        found = [
            value
            for sample, value in self.metrics().items()
            if sample.split("{", 1)[0] == name and all(f'{k}="{v}"' in sample for k, v in labels.items())
        ]
        assert found, f"/metrics has no {name} with {labels}"
        return sum(found)

    # -- states of a topic ----------------------------------------------------

    def arrow_segments(self) -> list[Path]:
        """Sealed `.arrow` files on the local disk, all topics, in the order of their names."""
        lake = self.data / "lake"
        return sorted(path for path in self.data.rglob("*.arrow") if lake not in path.parents)

    def wait_local_copy_dropped(self, topic: str, timeout: float = 60) -> None:
        """Wait until the topic's segments are gone from the local disk (`local.retention.ms` must be short)."""

        def dropped():
            return all(partition["local_segments"] == 0 for partition in self.partitions(topic))

        wait_until(dropped, timeout, f"the local segments of {topic} dropped", 0.2)
