"""Twenty cycles of kill -9 under load; `make soak` does two hundred."""

from __future__ import annotations

import random

import pytest

import kill9

pytestmark = [pytest.mark.weir_only, pytest.mark.timeout(600)]


def test_kill_9_under_load_loses_nothing_and_repeats_nothing(tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    print(kill9.run(tmp_path, cycles=20, seed=seed))
