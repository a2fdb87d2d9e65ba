"""Kafka's own command line tools: each does its work on a topic, and says what it says of an Apache Kafka."""

from __future__ import annotations

import json
import re

import pytest

from harness.clients.java import JAVA_4
from harness.process import wait_until
from harness.record import Record
from harness.tools import run, run_alone


def tool(name: str):
    return pytest.mark.program(name, "CLI tools 4.2")


class On:
    """The tools on one broker, with the option for its address that each wants."""

    def __init__(self, broker):
        self.broker = broker

    def __call__(self, name: str, *arguments: str, **more):
        return run(name, "--bootstrap-server", self.broker.bootstrap, *arguments, **more)


@pytest.fixture
def on(broker):
    return On(broker)


def node_id(broker) -> int:
    return JAVA_4.ask("describe_cluster", bootstrap=broker.bootstrap)["controller"]


def make_topic(on, topic: str, partitions: int = 1) -> None:
    on("kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions))


def fill(on, topic: str, count: int) -> None:
    JAVA_4.produce(on.broker.bootstrap, topic, [Record(f"{i}".encode()) for i in range(count)])


def rows(lines: list[str]) -> list[dict[str, str]]:
    """A table with one line of headings, as the tools print it."""
    heads = lines[0].split()
    return [dict(zip(heads, line.split(), strict=False)) for line in lines[1:]]


@tool("kafka-topics: create, list, describe, alter, delete")
def test_kafka_topics(on, topic):
    said = on("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=123456")
    assert f"Created topic {topic}." in said.output
    assert topic in on("kafka-topics", "--list").lines
    lines = on("kafka-topics", "--describe", "--topic", topic).lines
    assert re.match(
        rf"Topic: {topic}\s+TopicId: [\w-]{{22}}\s+PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=123456",
        lines[0],
    )
    node = node_id(on.broker)
    for partition, line in enumerate(lines[1:]):
        assert re.match(
            rf"\s*Topic: {topic}\s+Partition: {partition}\s+Leader: {node}\s+Replicas: {node}\s+Isr: {node}\b", line
        )
    assert len(lines) == 3
    on("kafka-topics", "--alter", "--topic", topic, "--partitions", "4")
    wait_until(
        lambda: "PartitionCount: 4" in on("kafka-topics", "--describe", "--topic", topic).output, 10, "four partitions"
    )
    assert on("kafka-topics", "--describe", "--under-replicated-partitions").lines == []
    assert on("kafka-topics", "--describe", "--unavailable-partitions").lines == []
    said = on("kafka-topics", "--create", "--topic", topic, code=1)
    assert "TopicExistsException" in said.output + said.errors
    on("kafka-topics", "--delete", "--topic", topic)
    wait_until(lambda: topic not in on("kafka-topics", "--list").lines, 10, "the topic gone")


@tool("kafka-configs: describe, alter, delete, all, brokers, refusals")
def test_kafka_configs(on, topic):
    make_topic(on, topic)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    said = on(
        "kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=1234567,cleanup.policy=[compact,delete]"
    )
    assert f"Completed updating config for topic {topic}." in said.output
    said = on("kafka-configs", "--describe", *of_topic)
    assert f"Dynamic configs for topic {topic} are:" in said.output
    assert "retention.ms=1234567 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1234567" in said.output
    assert "cleanup.policy=compact,delete" in said.output
    on("kafka-configs", "--alter", *of_topic, "--delete-config", "cleanup.policy")
    assert "cleanup.policy" not in on("kafka-configs", "--describe", *of_topic).output
    everything = on("kafka-configs", "--describe", "--all", *of_topic).output
    assert "max.message.bytes=1048588 sensitive=false synonyms={" in everything
    said = on("kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=soon", code=1)
    assert "InvalidConfigurationException" in said.output + said.errors

    of_broker = ("--entity-type", "brokers", "--entity-name", str(node_id(on.broker)))
    assert "All configs for broker" in on("kafka-configs", "--describe", "--all", *of_broker).output
    on("kafka-configs", "--alter", *of_broker, "--add-config", "log.retention.ms=99999999")
    wait_until(
        lambda: "log.retention.ms=99999999" in on("kafka-configs", "--describe", *of_broker).output, 10, "the change"
    )
    on("kafka-configs", "--alter", *of_broker, "--delete-config", "log.retention.ms")


@tool("kafka-configs: quotas of clients, SCRAM credentials of users")
def test_kafka_configs_of_clients_and_users(on, topic):
    client = ("--entity-type", "clients", "--entity-name", f"{topic}-client")
    on("kafka-configs", "--alter", *client, "--add-config", "producer_byte_rate=1000000,consumer_byte_rate=2000000")
    said = on("kafka-configs", "--describe", *client)
    assert f"Quota configs for client-id '{topic}-client' are " in said.output
    assert "producer_byte_rate=1000000.0" in said.output and "consumer_byte_rate=2000000.0" in said.output
    on("kafka-configs", "--alter", *client, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert "byte_rate" not in on("kafka-configs", "--describe", *client).output

    user = ("--entity-type", "users", "--entity-name", f"{topic}-user")
    on("kafka-configs", "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    said = on("kafka-configs", "--describe", *user)
    assert (
        f"SCRAM credential configs for user-principal '{topic}-user' are SCRAM-SHA-256=iterations=8192" in said.output
    )
    on("kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM" not in on("kafka-configs", "--describe", *user).output


@tool("kafka-configs: configs of a group")
def test_kafka_configs_of_groups(on, topic):
    group = ("--entity-type", "groups", "--entity-name", f"{topic}-group")
    on("kafka-configs", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    said = on("kafka-configs", "--describe", *group)
    assert "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:" in said.output
    on("kafka-configs", "--alter", *group, "--delete-config", "consumer.session.timeout.ms")


@pytest.mark.weir_only
@tool("kafka-client-metrics: refused by name, as telemetry is not built")
def test_kafka_client_metrics_are_refused_by_name(on, topic):
    asked = ("--metrics", "org.apache.kafka.producer.", "--interval", "60000", "--match", "client_software_name=x")
    said = on("kafka-client-metrics", "--alter", "--name", topic, *asked, code=1)
    assert "subscriptions to clients' metrics are not built" in said.output + said.errors
    assert topic not in on("kafka-client-metrics", "--list").lines


@tool("kafka-console-producer and kafka-console-consumer: keys, headers, group, formats")
def test_the_console_producer_and_consumer(on, topic):
    make_topic(on, topic)
    lines = "kind:order,n:1\tk1\tfirst\nkind:order,n:2\tk2\tsecond\n"
    on("kafka-console-producer", "--topic", topic, "--reader-property", "parse.key=true", "--reader-property",
       "parse.headers=true", "--compression-codec", "zstd", input=lines)  # fmt: skip
    shown = [f"print.{what}=true" for what in ("key", "headers", "partition", "offset")]
    formatting = [part for one in shown for part in ("--formatter-property", one)]
    said = on("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2", *formatting)
    assert said.lines == [
        "Partition:0\tOffset:0\tkind:order,n:1\tk1\tfirst",
        "Partition:0\tOffset:1\tkind:order,n:2\tk2\tsecond",
    ]
    assert "Processed a total of 2 messages" in said.errors + said.output

    group = ("--group", f"{topic}-group", "--timeout-ms", "4000")
    said = on("kafka-console-consumer", "--topic", topic, *group, "--from-beginning", "--max-messages", "1")
    assert said.lines == ["first"]
    on("kafka-console-producer", "--topic", topic, input="third\n")
    assert on("kafka-console-consumer", "--topic", topic, *group, "--max-messages", "2").lines == ["second", "third"]
    said = on("kafka-console-consumer", "--topic", topic, "--partition", "0", "--offset", "1", "--max-messages", "1")
    assert said.lines == ["second"]


@tool("kafka-consumer-groups: list, describe, reset, delete offsets, delete")
def test_kafka_consumer_groups(on, topic):
    make_topic(on, topic)
    fill(on, topic, 10)
    group = f"{topic}-group"
    member = JAVA_4.join(on.broker.bootstrap, group, topic, settings={"client.id": "shown"})
    member.read(10)
    member.commit()
    fill(on, topic, 5)
    assert group in on("kafka-consumer-groups", "--list").lines
    (row,) = rows(on("kafka-consumer-groups", "--describe", "--group", group).lines)
    assert (row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == (
        topic, "0", "10", "15", "5",
    )  # fmt: skip
    assert (row["HOST"], row["CLIENT-ID"]) == ("/127.0.0.1", "shown") and row["CONSUMER-ID"].startswith("shown-")
    (row,) = rows(on("kafka-consumer-groups", "--describe", "--group", group, "--members").lines)
    assert row["#PARTITIONS"] == "1"
    said = on("kafka-consumer-groups", "--describe", "--group", group, "--state")
    assert re.search(
        rf"{group}\s+{re.escape(on.broker.bootstrap)}\s+\({node_id(on.broker)}\)\s+range\s+Stable\s+1", said.output
    )
    reset = ("kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic)
    said = on(*reset, "--to-earliest", "--dry-run")
    assert "can only be reset if the group" in said.output + said.errors
    member.close()

    (row,) = rows(on(*reset, "--shift-by", "-3", "--execute").lines)
    assert row["NEW-OFFSET"] == "7"
    (row,) = rows(on(*reset, "--to-latest", "--dry-run").lines)
    assert row["NEW-OFFSET"] == "15"
    said = on("kafka-consumer-groups", "--describe", "--group", group)
    assert "has no active members" in said.output + said.errors
    exported = on(*reset, "--to-current", "--export").output
    assert f'"{group}",{topic},0,7' in exported.replace('"' + topic + '"', topic) or f"{topic},0,7" in exported.replace(
        '"', ""
    )
    said = on("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert re.search(rf"{topic}\s+0\s+Successful", said.output)
    said = on("kafka-consumer-groups", "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful" in said.output
    said = on("kafka-consumer-groups", "--delete", "--group", group)
    assert "GroupIdNotFoundException" in said.output + said.errors


@tool("kafka-groups: list with type and protocol")
def test_kafka_groups(on, topic):
    make_topic(on, topic)
    fill(on, topic, 1)
    member = JAVA_4.join(on.broker.bootstrap, topic, topic)
    member.read(1)
    (row,) = [row for row in rows(on("kafka-groups", "--list").lines) if row["GROUP"] == topic]
    assert (row["TYPE"], row["PROTOCOL"]) == ("Classic", "consumer")
    member.close()


@tool("kafka-producer-perf-test and kafka-consumer-perf-test")
def test_the_perf_tests(on, topic):
    make_topic(on, topic, 2)
    said = run("kafka-producer-perf-test", "--topic", topic, "--num-records", "20000", "--record-size", "200",
               "--throughput", "-1", "--bootstrap-server", on.broker.bootstrap,
               "--command-property", "acks=all", "compression.type=lz4")  # fmt: skip
    assert re.search(r"20000 records sent, [\d.]+ records/sec .* 99.9th\.", said.output)
    ends = on("kafka-get-offsets", "--topic", topic).lines
    assert sum(int(line.split(":")[2]) for line in ends) == 20_000
    said = on("kafka-consumer-perf-test", "--topic", topic, "--num-records", "20000", "--timeout", "20000")
    heads, values = (line.split(", ") for line in said.lines[-2:])
    assert dict(zip(heads, values, strict=True))["data.consumed.in.nMsg"] == "20000"


@tool("kafka-get-offsets: earliest, latest, by time, latest timestamp")
def test_kafka_get_offsets(on, topic):
    make_topic(on, topic, 2)
    JAVA_4.produce(on.broker.bootstrap, topic, [Record(b"x", timestamp=1_700_000_000_000 + i) for i in range(5)])
    ask = ("kafka-get-offsets", "--topic", topic, "--time")
    assert on(*ask, "-1").lines == [f"{topic}:0:5", f"{topic}:1:0"]
    assert on(*ask, "latest").lines == [f"{topic}:0:5", f"{topic}:1:0"]
    assert on(*ask, "earliest").lines == [f"{topic}:0:0", f"{topic}:1:0"]
    assert on(*ask, "1700000000003").lines[0] == f"{topic}:0:3"
    assert on(*ask, "max-timestamp").lines[0] == f"{topic}:0:4"
    said = on("kafka-get-offsets", "--topic-partitions", f"{topic}:1", "--time", "-1")
    assert said.lines == [f"{topic}:1:0"]


@tool("kafka-delete-records")
def test_kafka_delete_records(on, topic, tmp_path):
    make_topic(on, topic)
    fill(on, topic, 10)
    asked = tmp_path / "delete.json"
    asked.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    said = on("kafka-delete-records", "--offset-json-file", str(asked))
    assert f"partition: {topic}-0\tlow_watermark: 4" in said.output
    assert on("kafka-get-offsets", "--topic", topic, "--time", "earliest").lines == [f"{topic}:0:4"]


@tool("kafka-log-dirs: true sizes")
def test_kafka_log_dirs(on, topic):
    make_topic(on, topic)
    JAVA_4.produce(on.broker.bootstrap, topic, [Record(bytes(50_000))])
    said = on("kafka-log-dirs", "--describe", "--topic-list", topic)
    (told,) = [json.loads(line) for line in said.lines if line.startswith("{")]
    (broker,) = told["brokers"]
    assert broker["broker"] == node_id(on.broker)
    (dir,) = broker["logDirs"]
    (partition,) = dir["partitions"]
    assert dir["error"] is None
    assert partition["partition"] == f"{topic}-0" and 50_000 <= partition["size"] < 52_000
    assert (partition["offsetLag"], partition["isFuture"]) == (0, False)


@tool("kafka-transactions: list, describe, describe-producers, find-hanging, abort")
def test_kafka_transactions(on, topic):
    make_topic(on, topic)
    bootstrap = on.broker.bootstrap
    producer = JAVA_4.transaction(bootstrap, topic)
    producer.begin()
    producer.send(topic, [Record(b"open")])
    (row,) = [row for row in rows(on("kafka-transactions", "list").lines) if row["TransactionalId"] == topic]
    assert (row["Coordinator"], row["TransactionState"]) == (str(node_id(on.broker)), "Ongoing")
    (told,) = rows(on("kafka-transactions", "describe", "--transactional-id", topic).lines)
    assert (told["ProducerId"], told["TransactionState"]) == (row["ProducerId"], "Ongoing")
    assert told["TopicPartitions"] == f"{topic}-0"
    (state,) = rows(on("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0").lines)
    assert (state["ProducerId"], state["LastSequence"], state["CurrentTransactionStartOffset"]) == (
        row["ProducerId"],
        "0",
        "0",
    )
    hanging = on(
        "kafka-transactions", "find-hanging", "--topic", topic, "--partition", "0", "--max-transaction-timeout", "1"
    )
    assert not any(topic in line for line in hanging.lines), (
        "an open transaction that its coordinator knows does not hang"
    )
    on("kafka-transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    (state,) = rows(on("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0").lines)
    assert state["CurrentTransactionStartOffset"] == "None"
    producer.vanish()


@tool("kafka-broker-api-versions: no API that this release does not know")
def test_kafka_broker_api_versions(on):
    said = on("kafka-broker-api-versions")
    assert f"{on.broker.bootstrap} (id: {node_id(on.broker)} rack: null isFenced: false) -> (" in said.output
    served = dict(re.findall(r"(\w+)\((\d+)\): [\d to]+\[usable: \d+\]", said.output))
    for api in ("Produce", "Fetch", "ListOffsets", "Metadata", "JoinGroup", "CreateTopics", "InitProducerId",
                "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"):  # fmt: skip
        assert api in served, f"{api} is not usable:\n{said.output}"


@tool("kafka-cluster: the cluster's id")
def test_kafka_cluster(on):
    said = run("kafka-cluster", "cluster-id", "--bootstrap-server", on.broker.bootstrap)
    known = JAVA_4.ask("describe_cluster", bootstrap=on.broker.bootstrap)["cluster_id"]
    assert said.lines == [f"Cluster ID: {known}"]


@tool("kafka-metadata-quorum: status and replication")
def test_kafka_metadata_quorum(on):
    known = JAVA_4.ask("describe_cluster", bootstrap=on.broker.bootstrap)
    said = on("kafka-metadata-quorum", "describe", "--status")
    assert re.search(rf"ClusterId:\s+{re.escape(known['cluster_id'])}\n", said.output)
    assert re.search(rf"LeaderId:\s+{known['controller']}\n", said.output)
    assert re.search(r"MaxFollowerLag:\s+0\n", said.output)
    (row,) = rows(on("kafka-metadata-quorum", "describe", "--replication").lines)
    assert (row["NodeId"], row["Status"]) == (str(known["controller"]), "Leader")


@tool("kafka-features: what is finalized")
def test_kafka_features(on):
    said = on("kafka-features", "describe")
    told = {}
    for line in said.lines:
        if found := re.match(
            r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)",
            line,
        ):
            told[found[1]] = found[4]
    assert told["transaction.version"] == "2" and told["group.version"] == "1"
    assert told["metadata.version"].startswith("4.")


@tool("kafka-acls: security is disabled, and it says so")
def test_kafka_acls(on):
    said = on("kafka-acls", "--list", code=1)
    assert "SecurityDisabledException" in said.output + said.errors


@tool("kafka-leader-election: nothing to elect")
def test_kafka_leader_election(on, topic):
    make_topic(on, topic)
    said = on("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in said.output


@tool("kafka-reassign-partitions: list, generate, execute to where it is")
def test_kafka_reassign_partitions(on, topic, tmp_path):
    make_topic(on, topic)
    said = on("kafka-reassign-partitions", "--list")
    assert "No partition reassignments found." in said.output
    node = node_id(on.broker)
    move = tmp_path / "move.json"
    move.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    said = on(
        "kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", str(move), "--broker-list", str(node)
    )
    proposed = json.loads(said.lines[-1])
    assert proposed["partitions"] == [{"topic": topic, "partition": 0, "replicas": [node], "log_dirs": ["any"]}]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(proposed))
    said = on("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert f"Successfully started partition reassignment for {topic}-0" in said.output
    said = on("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan))
    assert f"Reassignment of partition {topic}-0 is completed." in said.output


@tool("kafka-e2e-latency")
def test_kafka_e2e_latency(on, topic):
    make_topic(on, topic)
    said = on(
        "kafka-e2e-latency", "--topic", topic, "--num-records", "200", "--producer-acks", "all", "--record-size", "100"
    )
    assert re.search(r"Avg latency: [\d.]+ ms", said.output)
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", said.output)


@tool("kafka-verifiable-producer and kafka-verifiable-consumer")
def test_the_verifiable_clients(on, topic):
    make_topic(on, topic)
    address = ("--bootstrap-server", on.broker.bootstrap)
    said = run_alone("kafka-verifiable-producer", *address, "--topic", topic, "--max-messages", "500")
    told = [json.loads(line) for line in said.lines]
    assert sum(one["name"] == "producer_send_success" for one in told) == 500
    assert (told[-1]["name"], told[-1]["acked"]) == ("tool_data", 500)
    reading = ("--topic", topic, "--group-id", topic, "--max-messages", "500", "--reset-policy", "earliest")
    said = run_alone("kafka-verifiable-consumer", *address, *reading)
    told = [json.loads(line) for line in said.lines]
    assert sum(one["count"] for one in told if one["name"] == "records_consumed") >= 500
    assert any(one["name"] == "offsets_committed" and one["success"] for one in told)
