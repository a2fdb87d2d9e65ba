"""A proxy that keeps the request frames that pass through it.

Brokers tell clients where they are, so the broker behind it must advertise the proxy's port as its own.
"""

from __future__ import annotations

import socket
import struct
import threading


def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes, or none when the other side has closed."""
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)


class Recorder:
    """Listens on `port` and forwards to `broker_port`. `frames` has every request without its four length bytes, in the
    order of arrival, each with the label that was set when it came."""

    def __init__(self, port: int, broker_port: int):
        self.broker_port = broker_port
        self.label = ""
        self.frames: list[tuple[str, bytes]] = []
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True, name="recorder").start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
            except OSError:
                return  # closed, or the broker is gone: the round is over
            threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._responses, args=(broker, client), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        try:
            while size := exactly(client, 4):
                frame = exactly(client, struct.unpack(">i", size)[0])
                self.frames.append((self.label, frame))
                broker.sendall(size + frame)
        except OSError:
            pass  # either side went away
        finally:
            broker.close()

    @staticmethod
    def _responses(broker: socket.socket, client: socket.socket) -> None:
        try:
            while piece := broker.recv(65536):
                client.sendall(piece)
        except OSError:
            pass
        finally:
            client.close()

    def close(self) -> None:
        self.listener.close()
