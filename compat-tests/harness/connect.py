"""Workers of Kafka Connect, distributed, in one group; connectors are made and watched over REST."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

from . import jvm
from .process import free_port, wait_until

JSON = "org.apache.kafka.connect.json.JsonConverter"

PROPERTIES = """bootstrap.servers={bootstrap}
group.id={group}
listeners=http://127.0.0.1:{port}
config.storage.topic={group}-configs
offset.storage.topic={group}-offsets
status.storage.topic={group}-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
offset.storage.partitions=3
status.storage.replication.factor=1
status.storage.partitions=2
key.converter={json}
value.converter={json}
exactly.once.source.support=enabled
offset.flush.interval.ms=500
scheduled.rebalance.max.delay.ms=1000
session.timeout.ms=6000
heartbeat.interval.ms=1000
worker.sync.timeout.ms=3000
plugin.discovery=service_load
plugin.path={plugins}
"""


class RestError(AssertionError):
    def __init__(self, path: str, status: int, body: str):
        super().__init__(f"{path} answered {status}: {body}")
        self.status = status


class Worker(jvm.JvmProcess):
    def __init__(self, folder: Path, name: str, bootstrap: str, group: str, *plugin_sets: str):
        """`plugin_sets` are sets of jars that Connect loads as plugins, each apart from all others."""
        self.port = free_port()
        self.name = f"127.0.0.1:{self.port}"
        plugins = folder / "plugins"
        plugins.mkdir(exist_ok=True)
        for plugin_set in plugin_sets:
            if not (plugins / plugin_set).exists():
                (plugins / plugin_set).symlink_to(jvm.jars(plugin_set))
        text = PROPERTIES.format(bootstrap=bootstrap, group=group, port=self.port, json=JSON, plugins=plugins)
        properties = folder / f"{name}.properties"
        properties.write_text(text)
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = jvm.command([f"{jvm.jars('kafka-4')}/*"], main, str(properties), heap="384m")
        super().__init__(folder / f"{name}.log", command)

    def request(self, method: str, path: str, body: dict | None = None):
        request = urllib.request.Request(f"http://{self.name}{path}", method=method)
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data=data, timeout=90) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            raise RestError(path, error.code, error.read().decode(errors="replace")) from None

    def answers(self) -> bool:
        if not self.running:
            raise AssertionError(f"the worker exited with {self.process.returncode}:\n{self.log_tail()}")
        try:
            return self.request("GET", "/connectors") is not None
        except (OSError, RestError):
            return False

    def ready(self) -> Worker:
        wait_until(self.answers, 90, f"the REST API of {self.name}", 0.2)
        return self

    def put(self, connector: str, config: dict[str, str]) -> None:
        """Make or change a connector; a rebalance under way answers 409, and is waited for."""

        def accepted():
            try:
                self.request("PUT", f"/connectors/{connector}/config", config)
                return True
            except RestError as error:
                if error.status == 409:
                    return False
                raise

        wait_until(accepted, 60, f"connector {connector} accepted", 0.3)

    def status(self, connector: str) -> dict:
        try:
            return self.request("GET", f"/connectors/{connector}/status")
        except (OSError, RestError):
            return {"tasks": []}

    def tasks_on(self, connector: str) -> list[str]:
        """The workers of the connector's running tasks. A failed task fails the test with its trace."""
        tasks = self.status(connector)["tasks"]
        for task in tasks:
            assert task["state"] != "FAILED", f"{connector}: {task['trace']}"
        return [task["worker_id"] for task in tasks if task["state"] == "RUNNING"]

    def wait_running(self, connector: str, timeout: float = 60) -> None:
        wait_until(lambda: self.tasks_on(connector), timeout, f"a running task of {connector}", 0.2)
