"""One connection to a broker: well-formed requests of any API and version, and bytes that are none."""

from __future__ import annotations

import socket
import struct

from . import codec

# How long an answer may take before the scenario ends there. Longer than any `max_wait_ms` a scenario asks for.
PATIENCE_S = 20.0


class Closed(Exception):
    """The broker closed the connection."""


class NoAnswer(Exception):
    """The broker kept silent."""


class Connection:
    def __init__(self, port: int, client_id: str | None = "diff"):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.client_id = client_id
        self.correlation = 0

    def call(self, api: str, version: int, patience: float = PATIENCE_S, **values) -> dict:
        self.send(api, version, **values)
        return self.receive(api, version, patience)

    def send(self, api: str, version: int, **values) -> None:
        message = codec.request(api)
        self.send_frame(self.header(api, version) + codec.encode(message, version, values))

    def header(self, api: str, version: int, key: int | None = None) -> bytes:
        """The request header; with its own `key`, that of an API nobody has."""
        self.correlation += 1
        client = (self.client_id or "").encode()
        size = -1 if self.client_id is None else len(client)
        key = codec.request(api).key if key is None else key
        tags = b"\0" if codec.request(api).is_flexible(version) else b""
        return struct.pack(">hhih", key, version, self.correlation, size) + client + tags

    def send_frame(self, payload: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as error:
            raise Closed("while sending") from error

    def receive(self, api: str, version: int, patience: float = PATIENCE_S, correlation: int | None = None) -> dict:
        frame = self.frame(patience, f"{api} v{version}")
        answered = int.from_bytes(frame[:4], "big", signed=True)
        expected = self.correlation if correlation is None else correlation
        if answered != expected:
            raise codec.Malformed(f"answer to request {answered} where {expected} was awaited")
        message = codec.response(api)
        start = 4
        if message.is_flexible(version) and api != "ApiVersions":
            if frame[4] != 0:
                raise codec.Malformed("tags in the response header")
            start = 5
        return codec.decode(message, version, frame[start:])

    def frame(self, patience: float = PATIENCE_S, what: str = "the request") -> bytes:
        """The next frame, without its length."""
        self.socket.settimeout(patience)
        try:
            return self._exactly(int.from_bytes(self._exactly(4), "big"))
        except TimeoutError as error:
            raise NoAnswer(f"to {what} within {patience:g} s") from error

    def state(self, patience: float = 5.0) -> str:
        """`closed`, `open` (nothing came for `patience` seconds) or `answered`."""
        self.socket.settimeout(patience)
        try:
            return "answered" if self.socket.recv(1) else "closed"
        except TimeoutError:
            return "open"
        except ConnectionError:
            return "closed"

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionError as error:
                raise Closed("reset") from error
            if not piece:
                raise Closed("by the broker")
            data += piece
        return bytes(data)

    def close(self) -> None:
        self.socket.close()
