"""What a scenario is: a short function that asks one broker things and notes what it sees."""

from __future__ import annotations

import inspect
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from . import batch, codec
from .connection import Closed, Connection, NoAnswer
from .normalise import Normaliser


@dataclass(frozen=True)
class Scenario:
    """`items` are the S-items of Kafka's wire behaviour and `bugs` the reported bugs it covers (see README.md)."""

    id: str
    run: Callable[[Stage], None]
    items: tuple[str, ...]
    bugs: tuple[int, ...]
    alone: bool
    brokers: str

    @property
    def restarts(self) -> bool:
        return inspect.isgeneratorfunction(self.run)


SCENARIOS: dict[str, Scenario] = {}


def scenario(items: str, bugs: tuple[int, ...] = (), alone: bool = False, brokers: str = "plain"):
    """Registers a function as `theme.function`.

    A generator function is one whose broker is killed (-9) and started again at its `yield`.
    `alone`: it turns something that other scenarios would notice. `brokers`: which of `run.SETTINGS` they have.
    """

    def register(function):
        name = f"{function.__module__.rsplit('.', 1)[1]}.{function.__name__}"
        assert name not in SCENARIOS, f"two scenarios are called {name}"
        SCENARIOS[name] = Scenario(name, function, tuple(items.split()), tuple(bugs), alone, brokers)
        return function

    return register


class NotAdvertised(Exception):
    """The broker does not have this API, or not at this version."""


@dataclass
class Transcript:
    """What was seen, in order, and why it ended early if it did."""

    entries: list[tuple[str, object]] = field(default_factory=list)
    ended: str | None = None
    trace: str = ""


# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
LOADING = {14, 15, 16}


class Peer:
    """One broker under test. `server` has `kafka_port`."""

    def __init__(self, name: str, server):
        self.name, self.server, self.port = name, server, server.kafka_port
        self.advertised: dict[int, range] = {}
        self.greet()

    def greet(self) -> None:
        """Ask what it serves, and wait until it serves it."""
        connection = Connection(self.port)
        answer = connection.call("ApiVersions", 3, client_software_name="diff", client_software_version="1")
        self.advertised = {
            key["api_key"]: range(key["min_version"], key["max_version"] + 1) for key in answer["api_keys"]
        }
        self._warm(connection)
        connection.close()

    @staticmethod
    def _warm(connection: Connection) -> None:
        """Wait until both coordinators have made and loaded their topics; enough names for every partition."""

        def ask(api: str, version: int, **values) -> None:
            for _ in range(1000):
                if connection.call(api, version, **values).get("error_code") not in LOADING:
                    return
                time.sleep(0.03)
            raise TimeoutError(f"{api} answers for ever that its coordinator is loading")

        for number in range(12):
            name = f"warm-{number}"
            connection.call("FindCoordinator", 3, key=name)
            connection.call("FindCoordinator", 3, key=name, key_type=1)
            ask("InitProducerId", 3, transactional_id=None, transaction_timeout_ms=1000)
            ask("InitProducerId", 3, transactional_id=name, transaction_timeout_ms=1000)
            ask("Heartbeat", 3, group_id=name, generation_id=1, member_id="nobody")


@dataclass(frozen=True)
class Topic:
    name: str
    id: object


_runs = itertools.count()
_lock = threading.Lock()


class Stage:
    """A scenario's hands on one broker: names of its own, connections, and the transcript."""

    def __init__(self, peer: Peer, scenario_id: str):
        with _lock:
            number = next(_runs)
        self.peer, self.port = peer, peer.port
        self.unique = f"d{number}x-"
        self.normaliser = Normaliser(self.unique, "127.0.0.1", peer.port)
        self.transcript = Transcript()
        self.connections: list[Connection] = []
        self._shared: Connection | None = None

    # -- asking -----------------------------------------------------------------

    def connect(self, client_id: str | None = "diff") -> Connection:
        connection = Connection(self.port, client_id)
        self.connections.append(connection)
        return connection

    @property
    def wire(self) -> Connection:
        """The scenario's main connection."""
        if self._shared is None:
            self._shared = self.connect()
        return self._shared

    def need(self, api: str, version: int) -> None:
        """End the scenario here when the broker does not advertise this."""
        if version not in self.peer.advertised.get(codec.request(api).key, range(0)):
            raise NotAdvertised(f"{api} v{version} is not advertised")

    def newest(self, api: str) -> int:
        self.need(api, next(iter(self.peer.advertised.get(codec.request(api).key, range(0))), -1))
        return self.peer.advertised[codec.request(api).key][-1]

    def call(self, api: str, version: int, on: Connection | None = None, **values) -> dict:
        self.need(api, version)
        return (on or self.wire).call(api, version, **values)

    def ask(self, label: str, api: str, version: int, on: Connection | None = None, **values) -> dict:
        """`call`, and note the answer."""
        answer = self.call(api, version, on, **values)
        self.see(label, answer)
        return answer

    # -- noting -----------------------------------------------------------------

    def see(self, label: str, value) -> None:
        self.transcript.entries.append((label, self.normaliser.plain(value)))

    def see_error(self, label: str, code: int) -> None:
        self.see(label, {"error_code": code})

    def until(self, what: str, condition, timeout: float = 20.0, pause: float = 0.05):
        """Ask until the answer is true; end the scenario when it never is."""
        deadline = time.monotonic() + timeout
        while True:
            if answer := condition():
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout:g} s")
            time.sleep(pause)

    # -- common steps -----------------------------------------------------------

    def name(self, base: str) -> str:
        """A name that no other scenario has, shown as `base`."""
        return self.unique + base

    def topic(self, base: str = "topic", partitions: int = 1, **configs) -> Topic:
        """A new topic that answers. Dots in config names are written as double underscores."""
        name = self.name(base)
        answer = self.call(
            "CreateTopics",
            7,
            timeout_ms=10_000,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [
                        {"name": key.replace("__", "."), "value": None if value is None else str(value)}
                        for key, value in configs.items()
                    ],
                }
            ],
        )["topics"][0]
        if answer["error_code"]:
            raise AssertionError(f"CreateTopics answered {answer['error_code']}: {answer['error_message']}")
        topic = Topic(name, answer["topic_id"])
        self.normaliser.plain(topic.id)  # ids are numbered as the topics are made
        self.until(f"a leader for {base}", lambda: self._has_leaders(topic))
        return topic

    def _has_leaders(self, topic: Topic) -> bool:
        answer = self.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": None}])["topics"][0]
        if answer["error_code"] or any(part["error_code"] for part in answer["partitions"]):
            return False
        offsets = [{"partition_index": part["partition_index"], "timestamp": -1} for part in answer["partitions"]]
        listed = self.call("ListOffsets", 7, replica_id=-1, topics=[{"name": topic.name, "partitions": offsets}])
        return not any(part["error_code"] for part in listed["topics"][0]["partitions"])

    def produce(
        self,
        topic: Topic,
        records: bytes | None,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
        txn: str | None = None,
        on: Connection | None = None,
    ) -> dict:
        """The partition's part of the answer."""
        data = {"name": topic.name, "topic_id": topic.id, "partition_data": [{"index": partition, "records": records}]}
        answer = self.call(
            "Produce", version, on, transactional_id=txn, acks=acks, timeout_ms=10_000, topic_data=[data]
        )
        return answer["responses"][0]["partition_responses"][0]

    def append(self, topic: Topic, *rows, partition: int = 0, **batch_fields) -> int:
        """Produce what must succeed; its base offset."""
        answer = self.produce(topic, batch.make(*rows, **batch_fields), partition)
        if answer["error_code"]:
            raise AssertionError(f"Produce answered {answer['error_code']}: {answer.get('error_message')}")
        return answer["base_offset"]

    def fetch(
        self,
        topic: Topic,
        offset: int = 0,
        partition: int = 0,
        version: int = 11,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation: int = 0,
        on: Connection | None = None,
        **part,
    ) -> dict:
        """The partition's part of the answer."""
        one = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes, **part}
        answer = self.call(
            "Fetch",
            version,
            on,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[{"topic": topic.name, "topic_id": topic.id, "partitions": [one]}],
        )
        return answer["responses"][0]["partitions"][0]

    def offsets(self, topic: Topic, partition: int = 0, isolation: int = 0) -> tuple[int, int]:
        """Earliest and latest."""
        found = []
        for timestamp in (-2, -1):
            parts = [{"partition_index": partition, "timestamp": timestamp}]
            # As a consumer: to a replica Kafka answers the log's end, whatever the isolation.
            wanted = {"replica_id": -1, "isolation_level": isolation}
            answer = self.call("ListOffsets", 7, **wanted, topics=[{"name": topic.name, "partitions": parts}])
            found.append(answer["topics"][0]["partitions"][0]["offset"])
        return found[0], found[1]

    def coordinator(self, key: str, kind: int = 0) -> None:
        """Wait until the coordinator of a group (0) or transactional id (1) answers."""

        def found():
            answer = self.call("FindCoordinator", 4, key_type=kind, coordinator_keys=[key])
            return answer["coordinators"][0]["error_code"] == 0

        self.until(f"the coordinator of {key}", found)

    def forget_connections(self) -> None:
        for connection in self.connections:
            connection.close()
        self.connections, self._shared = [], None


class Performance:
    """One scenario on one broker. A scenario that is a generator stops at its `yield`, and the broker is killed there."""

    def __init__(self, one: Scenario, peer: Peer):
        self.stage = Stage(peer, one.id)
        self.transcript = self.stage.transcript
        self.waiting = None
        self._step(lambda: one.run(self.stage))

    def go_on(self) -> Transcript:
        """What comes after the restart."""
        if self.waiting is not None:
            self.stage.forget_connections()
            rest, self.waiting = self.waiting, None
            self._step(lambda: next(rest, None))
        return self.transcript

    def _step(self, action: Callable[[], object]) -> None:
        stage, transcript = self.stage, self.transcript
        try:
            result = action()
            if inspect.isgenerator(result):
                next(result)
                self.waiting = result
        except (NotAdvertised, TimeoutError) as ended:
            transcript.ended = str(ended).replace(stage.unique, "")
        except Closed as ended:
            transcript.ended = f"the connection was closed {ended}"
            transcript.trace = traceback.format_exc()
        except NoAnswer as ended:
            transcript.ended = f"no answer {ended}"
            transcript.trace = traceback.format_exc()
        except Exception as error:  # whatever it was, it is what this broker did to the scenario
            transcript.ended = f"{type(error).__name__}: {error}".replace(stage.unique, "")
            transcript.trace = traceback.format_exc()
        finally:
            stage.forget_connections()


def perform(one: Scenario, peer: Peer) -> Transcript:
    return Performance(one, peer).transcript
