"""The guard function itself: it can say no, and asking it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from gatekeeper.domain.guard_function import guard_faults
from gatekeeper.domain.guard_names import Guard
from gatekeeper.domain.source import TreeEntry

PACKAGE = "m.x.spec_decode"
GUARD = Guard(PACKAGE, f"{PACKAGE}.gate", "enabled")
PLACE = "m/x/spec_decode"


class Files:
    """The three questions of a source tree that are asked here."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def entry(self, path: str) -> TreeEntry | None:
        return TreeEntry(path=path, mode="100644", kind="blob", id="0" * 40) if path in self.files else None

    def read(self, path: str) -> bytes:
        return self.files[path].encode()

    def walk(self, path: str = "") -> Iterator[TreeEntry]:
        return (entry for each in sorted(self.files) if (entry := self.entry(each)))


def faults(text: str, **more: str) -> list[str]:
    tree = Files({f"{PLACE}/gate.py": text, **{f"{PLACE}/{name}.py": each for name, each in more.items()}})
    found = list(guard_faults(tree, GUARD))  # type: ignore[arg-type]
    assert all(path.startswith(PLACE) and fault.expected and fault.found for path, fault in found)
    return [fault.message for _, fault in found]


HONEST = {
    "one question": "def enabled(config):\n    return config.extra.get('backend') == 'fast'\n",
    "several": "def enabled(config):\n    if config.rank > 1:\n        return False\n    return bool(config.extra)\n",
    "reasons": "def enabled(config):\n    reasons = []\n    reasons.append(config)\n    seen = {}\n    seen['x'] = 1\n    return not reasons\n",
    "cached": "import functools\n\n\n@functools.lru_cache(maxsize=None)\ndef enabled():\n    return probe()\n",
    "a constant that is false": "ON = False\n\n\ndef enabled(config):\n    return ON or config.on\n",
    "a constant that may become false": "ON = True\n\n\ndef enabled(config):\n    return ON and config.on\n",
    "kinds of values": "def enabled(config):\n    extra = config.extra\n    if not isinstance(extra, dict):\n        return False\n    return str(extra.get('backend', '')).lower() == 'fast'\n",
    "a copy of what it is given": "def enabled(config):\n    extra = dict(config.extra)\n    extra.pop('other', None)\n    extra['x'] = 1\n    return extra.get('backend') == 'fast'\n",
    "reasons by name": "def enabled(config):\n    missing = [name for name in ('a', 'b') if not getattr(config, name, None)]\n    missing.sort()\n    return not missing\n",
    "an error caught": "def enabled(config):\n    try:\n        return config.extra['backend'] == 'fast'\n    except (AttributeError, KeyError, TypeError):\n        return False\n",
    "inner generator": "def enabled(config):\n    def inner():\n        yield 1\n    return any(inner()) and config.on\n",
}
TRICKS = {
    "always true": "def enabled(config):\n    return True\n",
    "true on every way": "def enabled(config):\n    if config.on:\n        return 1\n    return (config,)\n",
    "true by a name": "ON = 1\n\n\ndef enabled(config):\n    return ON\n",
    "true or something": "def enabled(config):\n    return config.on or True\n",
    "not false": "def enabled(config):\n    return not 0\n",
    "true either way": "def enabled(config):\n    return 'a' if config.on else 'b'\n",
    "coroutine": "async def enabled(config):\n    return config.on\n",
    "generator": "def enabled(config):\n    yield False\n",
    "generator expression": "def enabled(config):\n    return (x for x in config)\n",
    "class": "class enabled:\n    def __init__(self, config):\n        pass\n",
    "bound twice": "def enabled(config):\n    return config.on\n\n\nenabled = len\n",
    "bound again by a function": "def enabled(config):\n    return config.on\n\n\ndef later():\n    global enabled\n    enabled = len\n",
    "only in a branch": "if True:\n    def enabled(config):\n        return config.on\n",
    "decorated": "@wrap\ndef enabled(config):\n    return config.on\n",
    "from elsewhere": "from os.path import exists as enabled\n",
    "changes its argument": "def enabled(config):\n    config.size = 1\n    return config.on\n",
    "changes through setattr": "def enabled(config):\n    setattr(config, 'size', 1)\n    return config.on\n",
    "changes through the dictionary": "def enabled(config):\n    vars(config)['size'] = 1\n    return config.on\n",
    "changes a module": "import torch\n\n\ndef enabled(config):\n    torch.backends.x = 1\n    return config.on\n",
    "raises": "def enabled(config):\n    if config.backend != 'fast':\n        raise RuntimeError('opt in')\n    return config.on\n",
    "asserts": "def enabled(config):\n    assert config.backend\n    return config.on\n",
    "asks for the module of a type": "def enabled(config):\n    return type(config).__module__.startswith('m.') and config.on\n",
    "asks for a class": "def enabled(config):\n    return config.__class__.__name__ == 'Config'\n",
    "updates its argument": "def enabled(config):\n    config.extra.update(backend='fast')\n    return config.on\n",
    "updates a part of its argument": "def enabled(config):\n    extra = getattr(config, 'extra', None)\n    if extra:\n        extra.update(backend='fast')\n    return bool(extra)\n",
    "sets a part of its argument": "def enabled(config):\n    extra = config.extra or {}\n    extra['backend'] = 'fast'\n    return extra['backend'] == config.on\n",
    "takes away from its argument": "def enabled(config):\n    return config.extra.pop('backend', None) == 'fast'\n",
    "changes a part's part": "def enabled(config):\n    a = config.get('a')\n    b = a.b\n    b.c = 1\n    return config.on\n",
    "counts": "CALLS = 0\n\n\ndef enabled(config):\n    global CALLS\n    CALLS += 1\n    return CALLS > 9\n",
    "not there": "def other(config):\n    return config.on\n",
    "not Python": "def enabled(config:\n",
}


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST.keys())
def test_honest_guards_pass(text: str) -> None:
    assert faults(text) == []


@pytest.mark.parametrize("text", TRICKS.values(), ids=TRICKS.keys())
def test_tricks_are_named(text: str) -> None:
    assert faults(text)


def test_a_guard_may_be_imported_within_the_directory() -> None:
    text = "from .real import enabled\n"
    assert faults(text, real=HONEST["one question"]) == []
    assert faults(text, real=TRICKS["always true"]) == ["the guard never says no"]
    assert faults(text, real="from .gate import enabled\n")


def test_a_package_hides_the_module_of_the_same_name() -> None:
    tree = Files({f"{PLACE}/gate.py": HONEST["one question"], f"{PLACE}/gate/__init__.py": TRICKS["always true"]})
    ((path, _),) = guard_faults(tree, GUARD)  # type: ignore[arg-type]
    assert path == f"{PLACE}/gate/__init__.py"
