"""Debezium reads PostgreSQL's log into a topic, through Kafka Connect: snapshot, changes, kill -9 of the broker."""

from __future__ import annotations

import json

import pytest

from harness.clients.java import JAVA_4
from harness.connect import Worker
from harness.postgres import Postgres
from harness.process import wait_until


@pytest.fixture
def postgres(tmp_path):
    server = Postgres(tmp_path / "postgres").start()
    yield server
    server.stop()


def connector(postgres: Postgres, prefix: str) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": postgres.user,
        "database.password": "trusted",
        "database.dbname": postgres.database,
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "table.include.list": "public.orders",
        "decimal.handling.mode": "string",
        "poll.interval.ms": "100",
        "exactly.once.support": "required",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.cleanup.policy": "compact",
    }


def events(broker, topic: str) -> list[tuple[dict, dict | None]]:
    """Key and value of every change, null for a tombstone; the schemas are taken off."""
    found = JAVA_4.ask("read_committed", bootstrap=broker.bootstrap, topic=topic)
    return [(json.loads(one["key"])["payload"], one["value"] and json.loads(one["value"])["payload"]) for one in found]


def kinds(changes) -> list[str]:
    return ["tombstone" if value is None else value["op"] for _, value in changes]


@pytest.mark.timeout(400)
@pytest.mark.program("PostgreSQL: snapshot, changes and tombstones, exactly once; broker killed -9", "Debezium 3.6")
def test_debezium_streams_each_change_once_through_kill_9(own_server, postgres, topic, tmp_path):
    broker = own_server
    postgres.sql("""
        CREATE TABLE orders (id INT PRIMARY KEY, item TEXT NOT NULL, amount NUMERIC(10, 2));
        INSERT INTO orders SELECT i, 'item ' || i, i / 4.0 FROM generate_series(1, 200) AS i;
    """)
    worker = Worker(tmp_path, "worker", broker.bootstrap, "debezium", "debezium").start()
    try:
        worker.ready().put("orders", connector(postgres, topic))
        table = f"{topic}.public.orders"
        wait_until(lambda: table in JAVA_4.topics(broker.bootstrap), 60, "the table's topic", 0.3)
        wait_until(lambda: kinds(events(broker, table)) == ["r"] * 200, 60, "the snapshot", 0.3)
        assert JAVA_4.topic_config(broker.bootstrap, table)["cleanup.policy"] == "compact"
        (first, *_) = JAVA_4.fetch(broker.bootstrap, table, 1)
        assert json.loads(first.value)["schema"]["name"] == f"{topic}.public.orders.Envelope"

        postgres.sql("INSERT INTO orders SELECT i, 'later', 1 FROM generate_series(201, 300) AS i;")
        broker.kill_and_restart()
        postgres.sql("""
            UPDATE orders SET item = 'changed' WHERE id <= 10;
            DELETE FROM orders WHERE id > 290;
            INSERT INTO orders SELECT i, 'last', NULL FROM generate_series(301, 350) AS i;
        """)
        wanted = ["r"] * 200 + ["c"] * 100 + ["u"] * 10 + ["d", "tombstone"] * 10 + ["c"] * 50
        wait_until(lambda: len(events(broker, table)) >= len(wanted), 120, "all changes", 0.5)
        changes = events(broker, table)
        assert kinds(changes) == wanted

        replayed = {}
        for key, value in changes:
            replayed[key["id"]] = value and value["after"]
        rows = {
            int(id): {"id": int(id), "item": item, "amount": amount or None}
            for id, item, amount in postgres.sql("SELECT id, item, amount FROM orders")
        }
        assert {id: row for id, row in replayed.items() if row is not None} == rows
    finally:
        worker.kill()
