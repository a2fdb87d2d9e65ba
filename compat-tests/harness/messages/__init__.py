"""Message schemas that kafka-python does not carry, in the same JSON form: field names, types and versions are Kafka's."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__name__):
    pass


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__name__):
    pass


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):
    pass


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):
    pass
