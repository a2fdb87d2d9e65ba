"""A minute of exactly-once under kills of workers and broker; `make soak` does ten."""

from __future__ import annotations

import random

import eos_chain
import pytest

pytestmark = [pytest.mark.weir_only, pytest.mark.timeout(400)]


def test_every_input_is_in_the_output_once_whoever_is_killed(tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    print(eos_chain.run(tmp_path, seconds=60, seed=seed))
