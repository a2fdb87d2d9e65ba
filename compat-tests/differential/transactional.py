"""A transactional producer, step by step."""

from __future__ import annotations

from . import batch
from .scenario import Stage, Topic


class Producer:
    """`begin` asks for the id and epoch; the version-1 protocol adds partitions itself, version 2 leaves that to Produce."""

    def __init__(self, t: Stage, name: str = "tx", timeout_ms: int = 60_000):
        self.t, self.name, self.timeout_ms = t, t.name(name), timeout_ms
        self.id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    def ask_id(self, version: int = 4, **more) -> dict:
        fields = {"transactional_id": self.name, "transaction_timeout_ms": self.timeout_ms}
        return self.t.call("InitProducerId", version, **{**fields, **more})

    def begin(self, version: int = 4, **more) -> Producer:
        """Waits while an earlier transaction of this id is being ended."""
        self.t.coordinator(self.name, 1)

        def ready():
            answer = self.ask_id(version, **more)
            if answer["error_code"] in (15, 14, 51):
                return None
            if answer["error_code"]:
                raise AssertionError(f"InitProducerId answered {answer['error_code']}")
            return answer

        answer = self.t.until("a producer id", ready)
        self.take(answer)
        return self

    def take(self, answer: dict) -> None:
        self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        self.sequences.clear()

    def identity(self) -> dict:
        return {"producer_id": self.id, "producer_epoch": self.epoch}

    def add(self, *wanted: tuple[Topic, int], version: int = 3, **more) -> list[dict] | dict:
        """AddPartitionsToTxn as clients send it; repeated while the one before is being finished."""
        topics = [{"name": topic.name, "partitions": [index]} for topic, index in wanted]
        fields = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": topics,
        }

        def answered():
            answer = self.t.call("AddPartitionsToTxn", version, **{**fields, **more})["results_by_topic_v3_and_below"]
            codes = {part["partition_error_code"] for one in answer for part in one["results_by_partition"]}
            return None if codes & {15, 51} else answer

        return self.t.until("the partitions in the transaction", answered)

    def send(
        self,
        topic: Topic,
        *rows,
        partition: int = 0,
        version: int = 9,
        epoch: int | None = None,
        sequence: int | None = None,
    ) -> dict:
        """The partition's part of the answer; repeated while the transaction before is being finished."""
        key = (topic.name, partition)
        number = self.sequences.get(key, 0) if sequence is None else sequence
        records = batch.make(
            *(rows or (b"v",)),
            attributes=batch.TRANSACTIONAL,
            producer=(self.id, self.epoch if epoch is None else epoch, number),
        )

        def answered():
            answer = self.t.produce(topic, records, partition, version, txn=self.name)
            return None if answer["error_code"] == 51 else answer

        answer = self.t.until("the batch in the transaction", answered)
        if answer["error_code"] == 0:
            self.sequences[key] = number + len(rows or (b"v",))
        return answer

    def ask_end(self, commit: bool, version: int = 4, **more) -> dict:
        """EndTxn; repeated while the transaction before is being finished."""
        fields = {"transactional_id": self.name, **self.identity(), "committed": commit}

        def answered():
            answer = self.t.call("EndTxn", version, **{**fields, **more})
            return None if answer["error_code"] == 51 else answer

        return self.t.until("the end of the transaction", answered)

    def end(self, commit: bool, version: int = 4, **more) -> dict:
        answer = self.ask_end(commit, version, **more)
        if answer["error_code"] == 0 and version >= 5:
            self.take(answer)
        return answer

    def run(self, topic: Topic, *rows, commit: bool, partition: int = 0) -> None:
        """One whole transaction of the version-1 protocol, with its marker in the log."""
        before = self.t.offsets(topic, partition)[1]
        self.add((topic, partition))
        answer = self.send(topic, *rows, partition=partition)
        if answer["error_code"]:
            raise AssertionError(f"Produce answered {answer['error_code']}")
        answer = self.end(commit)
        if answer["error_code"]:
            raise AssertionError(f"EndTxn answered {answer['error_code']}")
        self.settled(topic, before + len(rows or (b"v",)) + 1, partition)

    def settled(self, topic: Topic, end: int, partition: int = 0) -> None:
        """Wait until the log ends there and nothing is open; a restarted Kafka takes its time to abort what timed out."""
        self.t.until(
            f"the log to end at {end}",
            lambda: (
                self.t.offsets(topic, partition)[1] == end and self.t.offsets(topic, partition, isolation=1)[1] == end
            ),
            timeout=60,
        )

    def offsets_to_group(self, group: str, version: int = 3) -> dict:
        def answered():
            answer = self.t.call(
                "AddOffsetsToTxn", version, transactional_id=self.name, **self.identity(), group_id=group
            )
            return None if answer["error_code"] in (15, 51) else answer

        return self.t.until("the group in the transaction", answered)

    def commit_offset(self, group: str, topic: Topic, offset: int, version: int = 3, **more) -> int:
        parts = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}]
        answer = self.t.call(
            "TxnOffsetCommit",
            version,
            transactional_id=self.name,
            group_id=group,
            **self.identity(),
            **more,
            topics=[{"name": topic.name, "partitions": parts}],
        )
        return answer["topics"][0]["partitions"][0]["error_code"]
