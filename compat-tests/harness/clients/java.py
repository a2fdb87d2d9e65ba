"""Apache Kafka's own Java client, three releases of it: the program in `java/client` takes the verbs as lines of JSON.

Beyond the common verbs it has what only a Java client's tests ask for: `ask` sends any verb of that program.
"""

from __future__ import annotations

from .. import jvm
from ..record import Record
from .base import CLASSIC, EVERYTHING, KIP848, REPLACE_CONFIG, GroupMember, Membership, Refused
from .program import AskedClient, record_of, wire_of

MAIN = "io.weir.compat.Main"


class Member(GroupMember):
    """`more` goes to the verb: `settings` of the consumer, `pattern` or `re2` in place of the topic."""

    def __init__(self, client: Java, bootstrap: str, group: str, topic: str, **more):
        self.client = client
        self.number = client.ask("join", bootstrap=bootstrap, group=group, topic=topic, **more)

    def poll(self, seconds: float) -> list[Record]:
        return [record_of(record) for record in self.client.ask("poll", member=self.number, seconds=seconds)]

    def assignment(self) -> set[int]:
        return set(self.client.ask("assignment", member=self.number))

    def revoked(self) -> list[int]:
        taken = (event.partition(" ") for event in self.events())
        return [int(p) for what, _, numbers in taken if what != "assigned" for p in numbers.split(",") if p]

    def commit(self) -> None:
        self.client.ask("commit", member=self.number)

    def committed(self, topic: str, partition: int = 0) -> int | None:
        return self.client.ask("committed", member=self.number, topic=topic, partition=partition)

    def events(self) -> list[str]:
        """What the rebalance listener was told, in order: "assigned 0,1", "revoked 1", "lost 0"."""
        return self.client.ask("events", member=self.number)

    def close(self) -> None:
        self.client.ask("close", member=self.number)


class Transaction:
    """One transactional producer; each method is the Java client's method of that name."""

    def __init__(self, client: Java, bootstrap: str, transactional_id: str, **settings: str):
        self.client = client
        self.number = client.ask("tx_open", bootstrap=bootstrap, transactional_id=transactional_id, settings=settings)

    def begin(self) -> None:
        self.client.ask("tx_begin", producer=self.number)

    def send(self, topic: str, records: list[Record]) -> list[int]:
        return self.client.ask(
            "tx_send", producer=self.number, topic=topic, records=[wire_of(record) for record in records]
        )

    def send_offsets(self, member: Member, topic: str, offsets: dict[int, int]) -> None:
        named = {str(partition): offset for partition, offset in offsets.items()}
        self.client.ask("tx_offsets", producer=self.number, member=member.number, topic=topic, offsets=named)

    def commit(self) -> None:
        self.client.ask("tx_commit", producer=self.number)

    def abort(self) -> None:
        self.client.ask("tx_abort", producer=self.number)

    def close(self) -> None:
        self.client.ask("tx_close", producer=self.number)

    def vanish(self) -> None:
        """Close without ending the transaction, as a crash does."""
        self.client.ask("tx_close", producer=self.number, ms=0)


class Java(AskedClient):
    def __init__(self, name: str, jar_set: str, since: int, features: frozenset[str]):
        self.name, self.jar_set, self.since, self.features = name, jar_set, since, features
        self.jvm = jvm.Asked(self._command)

    def _command(self) -> list[str]:
        release = "client/since-4" if self.since >= 4 else "client/before-4"
        compiled = jvm.classes(self.jar_set, "client/common", release)
        return jvm.command([compiled, f"{jvm.jars(self.jar_set)}/*"], MAIN)

    def missing(self) -> str | None:
        return jvm.missing("java", "javac", "mvn")

    def ask(self, verb: str, **arguments):
        answer = self.jvm.ask({"verb": verb, **arguments})
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["ok"]

    def produce(self, bootstrap, topic, records, *, codec="none", idempotent=False):
        return self.ask(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            records=[wire_of(record) for record in records],
            codec=codec,
            idempotent=idempotent,
        )

    def fetch(self, bootstrap, topic, count, *, partition=0, start=0, client_id=None, read_committed=False, timeout=60):
        answer = self.ask(
            "fetch",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            start=start,
            count=count,
            client_id=client_id,
            timeout=timeout,
            settings={"isolation.level": "read_committed" if read_committed else "read_uncommitted"},
        )
        return [record_of(record) for record in answer]

    def join(self, bootstrap, group, topic, how: Membership = CLASSIC, **more) -> Member:
        """`more` says in the consumer's own settings what `how` cannot."""
        settings = {}
        if how.server_side:
            settings["group.protocol"] = "consumer"
        elif how != CLASSIC:
            assignor = "CooperativeStickyAssignor" if how.cooperative else "RangeAssignor"
            settings["partition.assignment.strategy"] = f"org.apache.kafka.clients.consumer.{assignor}"
            settings["session.timeout.ms"] = str(how.session_timeout_ms)
        if how.instance:
            settings["group.instance.id"] = how.instance
        return Member(self, bootstrap, group, topic, **{"settings": settings, **more})

    def transact(self, bootstrap, topic, transactional_id, transactions):
        producer = self.transaction(bootstrap, transactional_id)
        for records, commit in transactions:
            producer.begin()
            producer.send(topic, records)
            producer.commit() if commit else producer.abort()
        producer.close()

    def copy_in_transaction(self, bootstrap, topic, to, group, transactional_id, count, commit):
        member = self.join(bootstrap, group, topic)
        read = member.read(count)
        producer = self.transaction(bootstrap, transactional_id)
        producer.begin()
        producer.send(to, [Record(record.value, record.key) for record in read])
        producer.send_offsets(member, topic, {record.partition: record.offset + 1 for record in read})
        producer.commit() if commit else producer.abort()
        producer.close()
        member.close()

    def transaction(self, bootstrap: str, transactional_id: str, **settings: str) -> Transaction:
        """A transactional producer, past initTransactions."""
        return Transaction(self, bootstrap, transactional_id, **settings)


# KIP-848 came to the Java client with 4.0, and AlterConfigs left it.
JAVA_2 = Java("java-2", "clients-2", 2, EVERYTHING - {KIP848})
JAVA_3 = Java("java-3", "clients-3", 3, EVERYTHING - {KIP848})
JAVA_4 = Java("java-4", "kafka-4", 4, EVERYTHING - {REPLACE_CONFIG})
RELEASES = (JAVA_2, JAVA_3, JAVA_4)
