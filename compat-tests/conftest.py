"""Brokers for the tests, and the rule that CI never skips."""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path

import pytest

from harness.broker import Broker
from harness.kafka_peer import ApacheKafka
from harness.process import ServerProcess

# A first join must not wait three seconds for others in every test.
# Members of consumer-protocol groups must not have to wait five seconds for their next heartbeat.
SHARED_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}

_matrix: dict[str, dict[str, str]] = {}


def pytest_addoption(parser):
    parser.addoption("--peer", choices=("weir", "kafka"), default="weir", help="the broker under the clients' tests")
    parser.addoption("--matrix-json", help="write the client x feature outcome of this run to a file")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--peer") == "kafka":
        kept = [item for item in items if not item.get_closest_marker("weir_only")]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"CI forbids skips: {report.longrepr}"
    if report.failed and call.when == "call":
        for value in item.funcargs.values():
            if isinstance(value, ServerProcess):
                report.sections.append((f"end of {value.log_file}", value.log_tail()))
    feature = item.get_closest_marker("feature")
    if feature and call.when == "call" and "client" in item.callspec.params:
        row = _matrix.setdefault(feature.args[0], {})
        client = str(item.callspec.params["client"])
        if row.get(client) != "fails":
            row[client] = "yes" if report.passed else "fails"


def pytest_sessionfinish(session):
    if path := session.config.getoption("--matrix-json"):
        Path(path).write_text(json.dumps(_matrix, indent=1, sort_keys=True))


def start_server(config, folder: Path, settings: dict[str, str]) -> Broker | ApacheKafka:
    server = Broker(folder, settings) if config.getoption("--peer") == "weir" else ApacheKafka(folder, settings)
    return server.start()


@pytest.fixture(scope="session")
def broker(request, tmp_path_factory):
    """One broker that all the clients' tests share."""
    server = start_server(request.config, tmp_path_factory.mktemp("shared"), SHARED_SETTINGS)
    yield server
    server.stop()


@pytest.fixture
def start_broker(tmp_path):
    """Starts Weir brokers of the test's own, with its settings; whatever still runs at the end is stopped cleanly."""
    started: list[Broker] = []

    def start(settings: dict[str, str] | None = None, folder: Path | None = None) -> Broker:
        server = Broker(folder or tmp_path / f"broker-{len(started)}", {**SHARED_SETTINGS, **(settings or {})})
        started.append(server)
        return server.start()

    yield start
    for server in started:
        if server.running:
            server.stop()


_numbers = itertools.count()


@pytest.fixture
def topic(request):
    """A topic name of the test's own."""
    return f"{re.sub(r'[^a-zA-Z0-9_-]+', '-', request.node.name)[:100].strip('-')}-{next(_numbers)}"
