"""One scenario on Apache Kafka and on Weir: the transcripts are the same, or the difference is listed with its reason."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from differential import codec
from differential.compare import differences, listed, verdict
from differential.run import SCENARIOS, Session, show

pytestmark = pytest.mark.weir_only  # it starts its own brokers, of both kinds

# What only the inside of a broker, or another machine, could show; each with its reason.
UNSEEN_ITEMS = {
    "S-15": "session lifetimes are those of a SASL listener, which Weir does not have",
    "S-16": "tokens of PLAIN need a SASL listener too",
    "S-20": "a broker that is alone leads every partition",
}
ALL_ITEMS = [f"S-{number}" for number in range(1, 107)]
ALL_BUGS = range(1, 63)


@pytest.fixture(scope="session")
def brokers(request, tmp_path_factory):
    missing = [tool for tool in ("java", "mvn") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"Apache Kafka needs {' and '.join(missing)}: no scenario was compared")
    names = [item.callspec.params["name"] for item in request.session.items if _is_scenario(item)]
    session = Session(tmp_path_factory.mktemp("differential"), names)
    yield session
    session.stop()


def _is_scenario(item) -> bool:
    return getattr(item, "originalname", None) == "test_scenario" and item.path == Path(__file__)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_scenario(brokers, name):
    kafka, weir = brokers.transcript(name, "kafka"), brokers.transcript(name, "weir")
    assert kafka.ended is None, f"the scenario does not run on Apache Kafka:\n{show(kafka)}"
    assert kafka.entries, "a scenario that notes nothing compares nothing"
    said = verdict(name, differences(kafka, weir), listed())
    assert said is None, f"{name} {said}\n\nKafka:\n{show(kafka)}\n\nWeir:\n{show(weir)}"


def test_weir_takes_the_settings_that_kafka_takes(brokers):
    found = [f"setting: Weir refuses {name}" for name in sorted(brokers.refused)]
    said = verdict("broker.settings", found, listed())
    assert said is None, said


def test_every_message_of_kafkas_is_encoded_and_decoded(brokers):
    for message in codec.definitions().values():
        for version in message.valid:
            values = {member.name: member.default_value() for member in message.fields}
            once = codec.encode(message, version, values)
            assert codec.encode(message, version, codec.decode(message, version, once)) == once, (message.name, version)


def test_every_listed_difference_is_of_a_scenario():
    unknown = set(listed()) - set(SCENARIOS) - {"broker.settings"}
    assert not unknown, f"differences.md lists what is no scenario: {sorted(unknown)}"


def test_every_item_of_the_wire_behaviour_has_a_scenario():
    covered = {item for scenario in SCENARIOS.values() for item in scenario.items}
    assert covered <= set(ALL_ITEMS), f"no such items: {sorted(covered - set(ALL_ITEMS))}"
    missing = [item for item in ALL_ITEMS if item not in covered and item not in UNSEEN_ITEMS]
    assert not missing, f"no scenario covers {missing}"
    assert not (covered & set(UNSEEN_ITEMS)), "covered after all: take them out of UNSEEN_ITEMS"


def test_every_reported_bug_has_a_scenario():
    covered = {bug for scenario in SCENARIOS.values() for bug in scenario.bugs}
    missing = [bug for bug in ALL_BUGS if bug not in covered]
    assert not missing, f"no scenario covers bugs {missing}"


def test_scenario_names_tell_their_theme():
    odd = [name for name in SCENARIOS if not re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", name)]
    assert not odd
