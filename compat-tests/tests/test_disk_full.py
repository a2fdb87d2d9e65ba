"""A full disk refuses produce, goes on serving reads, and is forgotten once there is space again."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaStorageError

from harness.clients import BY_NAME
from harness.record import Record

pytestmark = pytest.mark.weir_only

CLIENT = BY_NAME["kafka-python"]  # shows the broker's error by name; a storage error is one that clients retry
SIZE_MB = 96


@pytest.fixture
def small_disk(tmp_path):
    """A file system of `SIZE_MB`: an ext4 image through the loop device, or a tmpfs where there is none."""
    if os.geteuid() != 0:
        pytest.skip("LOUD SKIP: a small file system needs root to mount")
    mount = tmp_path / "small"
    mount.mkdir()
    image = tmp_path / "small.img"
    with open(image, "wb") as file:
        file.truncate(SIZE_MB << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(mount)], capture_output=True)
    if mounted.returncode != 0:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def fill(folder) -> None:
    """Take all the space that is left."""
    with open(folder / "ballast", "wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, max(1, shutil.disk_usage(folder).free - (1 << 16)))


def produce_without_retries(broker, topic: str, record: Record) -> int:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, acks="all", retries=0, enable_idempotence=False, max_request_size=2_000_000
    )
    try:
        return producer.send(topic, record.value, partition=0).get(30).offset
    finally:
        producer.close(timeout=5)


def test_a_full_disk_refuses_produce_serves_reads_and_recovers_by_itself(start_broker, small_disk, topic):
    broker = start_broker({"weir.wal.segment.bytes": str(4 << 20)}, small_disk / "broker")
    CLIENT.create_topic(broker.bootstrap, topic)
    record = Record(os.urandom(500_000))
    stored = CLIENT.produce(broker.bootstrap, topic, [record] * 4)
    fill(small_disk)

    with pytest.raises(KafkaStorageError):
        for _ in range(60):  # the WAL's preallocated file still has room for some
            stored.append(produce_without_retries(broker, topic, record))
    back = CLIENT.fetch(broker.bootstrap, topic, len(stored))
    assert all(one.value == record.value for one in back)
    assert broker.running

    (small_disk / "ballast").unlink()
    stored += CLIENT.produce(broker.bootstrap, topic, [record])
    assert stored == list(range(len(stored)))
    broker.restart()
    assert len(CLIENT.fetch(broker.bootstrap, topic, len(stored))) == len(stored)
    broker.stop()
