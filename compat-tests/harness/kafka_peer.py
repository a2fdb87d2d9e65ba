"""Apache Kafka beside Weir: one KRaft node from Maven Central's jars, started like `Broker` and costing what it costs.

The clients' tests run against it with `--peer kafka`: a test that is red there too says nothing about Weir.
"""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from .process import ServerProcess, free_port, wait_until

KAFKA_VERSION = "4.2.0"

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.weir</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""

PROPERTIES = """process.roles=broker,controller
node.id=0
controller.quorum.voters=0@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def kafka_jars() -> Path:
    """The folder with Kafka's jars, filled from Maven Central on first use and kept in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "weir" / f"kafka-{KAFKA_VERSION}"
    libs = cache / "libs"
    if not (cache / "complete").exists():
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "pom.xml").write_text(POM)
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(cache / "pom.xml"),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={libs}",
        ]
        subprocess.run(command, check=True)
        (cache / "complete").touch()
    return libs


class ApacheKafka(ServerProcess):
    """`settings` are broker properties, `heap` the JVM's whole heap."""

    peer = "kafka"

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, heap: str = "1g"):
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "kafka.log")
        self.folder, self.heap, self.settings = folder, heap, dict(settings or {})
        self.data = folder / "data"
        self.kafka_port, self.controller_port = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self.kafka_port}"

    def java(self, main: str, *arguments: str) -> list[str]:
        options = [
            f"-Xms{self.heap}",
            f"-Xmx{self.heap}",
            "-XX:+UseG1GC",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]
        return ["java", *options, "-cp", f"{kafka_jars()}/*", main, *arguments]

    def command(self) -> list[str]:
        return self.java("kafka.Kafka", str(self.folder / "server.properties"))

    def start(self, timeout: float = 120) -> "ApacheKafka":
        properties = self.folder / "server.properties"
        if not self.data.exists():
            text = PROPERTIES.format(port=self.kafka_port, controller=self.controller_port, data=self.data)
            properties.write_text(text + "".join(f"{k}={v}\n" for k, v in self.settings.items()))
            cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")
            command = self.java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties))
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.spawn(self.command())
        wait_until(self._serves, timeout, "Kafka's port to open")
        return self

    def _serves(self) -> bool:
        if not self.running:
            raise AssertionError(f"Kafka exited with {self.process.returncode}:\n{self.log_tail()}")
        try:
            socket.create_connection(("127.0.0.1", self.kafka_port), 0.2).close()
            return True
        except OSError:
            return False

    def stop(self, timeout: float = 60) -> None:
        self.terminate(timeout)

    def kill_and_restart(self, timeout: float = 120) -> "ApacheKafka":
        self.kill()
        return self.start(timeout)
