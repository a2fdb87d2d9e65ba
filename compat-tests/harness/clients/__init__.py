"""The clients of the matrix, each behind the same few verbs, each doing the work with its own library."""

from __future__ import annotations

from .aio import AioKafka
from .base import Client, GroupMember, Refused
from .confluent import Confluent
from .golang import FranzGo, KafkaGo, Sarama
from .java import RELEASES as JAVA
from .kafka_python import KafkaPython
from .kcat import Kcat
from .node import KafkaJs, NodeLibrdkafka
from .rust import RustRdkafka

ALL: tuple[Client, ...] = (
    Confluent(),
    KafkaPython(),
    AioKafka(),
    RustRdkafka(),
    Kcat(),
    FranzGo(),
    Sarama(),
    KafkaGo(),
    KafkaJs(),
    NodeLibrdkafka(),
    *JAVA,
)
BY_NAME = {client.name: client for client in ALL}

__all__ = ["ALL", "BY_NAME", "Client", "GroupMember", "Refused"]
