"""One thread, and the tiny problem loaded once."""

import pytest
import torch

from kernels_under_test.kimi_k3.problem import KimiProblem, load


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny() -> KimiProblem:
    return load("tiny")
