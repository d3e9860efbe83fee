"""A directory that would open the gate is refused with the reason and a way that works."""

from __future__ import annotations

import pytest

from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.repository import parse

TABLE = 'schema = 1\n[[models]]\nname = "m"\nroot = {root}\nfree = [{free}]\n'


@pytest.mark.parametrize(
    ("root", "free", "place", "reason"),
    [
        ('"ops"', '"*"', ":5: models.0.free.0", "below a name it may stand: 'ops/*'"),
        ('"*"', '"a"', ":4: models.0.root", "no literal name"),
        ('"ops"', '"../a"', ":5: models.0.free.0", "'.' or '..'"),
        ('"ops"', '"a/**"', ":5: models.0.free.0", "leave the depth open"),
        ('"ops"', '"[ab]"', ":5: models.0.free.0", "have no meaning here"),
        ('""', '"a"', ":4: models.0.root", "an empty pattern"),
        ("3", '"a"', ":4: models.0.root", "valid string"),
    ],
)
def test_the_reason_stands_next_to_the_place(root: str, free: str, place: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match="CONFIG_ALLOWED_DIR") as caught:
        parse(TABLE.format(root=root, free=free).encode(), "g.toml")
    assert f"g.toml{place}: " in str(caught.value)
    assert reason in str(caught.value)


def test_the_way_that_the_reason_names_works() -> None:
    assert parse(TABLE.format(root='"kernels"', free='"ops/*"').encode()).models[0].free == ("ops/*",)
