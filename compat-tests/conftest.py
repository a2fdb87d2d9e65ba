"""Brokers for the tests, and the rule that CI never skips."""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path

import pytest

from harness.broker import Broker
from harness.clients import Client
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
# What only some programs do: feature -> program -> outcome.
_programs: dict[str, dict[str, str]] = {}


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
    client = getattr(item, "callspec", None) and item.callspec.params.get("client")
    feature, program = item.get_closest_marker("feature"), item.get_closest_marker("program")
    if feature and client and call.when == "call":
        note(_matrix.setdefault(feature.args[0], {}), str(client), report)
    if program and (call.when == "call" or (report.failed and call.when == "setup")):
        what, *name = program.args
        note(_programs.setdefault(what, {}), name[0] if name else str(client), report)


def note(row: dict[str, str], who: str, report) -> None:
    """One failing case of a row makes the whole cell fail; a skipped one says nothing."""
    if report.failed:
        row[who] = "fails"
    elif report.passed:
        row.setdefault(who, "yes")


def pytest_sessionfinish(session):
    if path := session.config.getoption("--matrix-json"):
        Path(path).write_text(json.dumps({"clients": _matrix, "programs": _programs}, indent=1, sort_keys=True))


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


@pytest.fixture(autouse=True)
def _client_can_run(request):
    """Skips, and says so, where a client's toolchain is not installed: CI=true makes that a failure."""
    for value in getattr(getattr(request.node, "callspec", None), "params", {}).values():
        if isinstance(value, Client) and (reason := value.missing()):
            pytest.skip(f"{value}: {reason}")


@pytest.fixture
def own_server(request, tmp_path):
    """One broker of the test's own, of the kind under test: it may be killed -9 and restarted."""
    server = start_server(request.config, tmp_path / "server", SHARED_SETTINGS)
    yield server
    if server.running:
        server.stop()


@pytest.fixture(scope="module")
def module_server(request, tmp_path_factory):
    """One broker for the tests of a file, of the kind under test: it may be killed -9 and restarted."""
    server = start_server(request.config, tmp_path_factory.mktemp("module"), SHARED_SETTINGS)
    yield server
    if server.running:
        server.stop()


_numbers = itertools.count()


@pytest.fixture
def topic(request):
    """A topic name of the test's own."""
    return f"{re.sub(r'[^a-zA-Z0-9_-]+', '-', request.node.name)[:100].strip('-')}-{next(_numbers)}"
