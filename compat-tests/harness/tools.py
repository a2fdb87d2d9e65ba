"""Kafka's command line tools, by the names of their scripts, each with its own `main` in one JVM that serves them all."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from . import jvm

TOOLS = "org.apache.kafka.tools."
MAINS = {
    "kafka-acls": f"{TOOLS}AclCommand",
    "kafka-broker-api-versions": f"{TOOLS}BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{TOOLS}ClientMetricsCommand",
    "kafka-cluster": f"{TOOLS}ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{TOOLS}consumer.ConsoleConsumer",
    "kafka-console-producer": f"{TOOLS}ConsoleProducer",
    "kafka-consumer-groups": f"{TOOLS}consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{TOOLS}ConsumerPerformance",
    "kafka-delete-records": f"{TOOLS}DeleteRecordsCommand",
    "kafka-e2e-latency": f"{TOOLS}EndToEndLatency",
    "kafka-features": f"{TOOLS}FeatureCommand",
    "kafka-get-offsets": f"{TOOLS}GetOffsetShell",
    "kafka-groups": f"{TOOLS}GroupsCommand",
    "kafka-leader-election": f"{TOOLS}LeaderElectionCommand",
    "kafka-log-dirs": f"{TOOLS}LogDirsCommand",
    "kafka-metadata-quorum": f"{TOOLS}MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{TOOLS}ProducerPerformance",
    "kafka-reassign-partitions": f"{TOOLS}reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": f"{TOOLS}ReplicaVerificationTool",
    "kafka-topics": f"{TOOLS}TopicCommand",
    "kafka-transactions": f"{TOOLS}TransactionsCommand",
    "kafka-verifiable-consumer": f"{TOOLS}VerifiableConsumer",
    "kafka-verifiable-producer": f"{TOOLS}VerifiableProducer",
}


@dataclass(frozen=True)
class Said:
    """What a tool left behind."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.strip()]


def command_line() -> list[str]:
    return jvm.command([jvm.classes("kafka-4", "tools"), f"{jvm.jars('kafka-4')}/*"], "io.weir.compat.tools.Tools")


_jvm = jvm.Asked(command_line)


def run(tool: str, *arguments: str, input: str = "", code: int = 0) -> Said:
    """Run a tool; its exit code must be `code`."""
    answer = _jvm.ask({"main": MAINS[tool], "arguments": arguments, "input": input})
    said = Said(**answer)
    assert said.code == code, f"{tool} {' '.join(arguments)} exited with {said.code}:\n{said.output}\n{said.errors}"
    return said


def run_alone(tool: str, *arguments: str, timeout: float = 60) -> Said:
    """Run a tool in a JVM of its own: it does a part of its work in a shutdown hook."""
    command = jvm.command([f"{jvm.jars('kafka-4')}/*"], MAINS[tool], *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert ended.returncode == 0, f"{tool} exited with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
    return Said(ended.returncode, ended.stdout, ended.stderr)
