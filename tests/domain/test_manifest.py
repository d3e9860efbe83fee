"""The manifest: every error with its line, all at once; limits; the published schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gatekeeper.domain.manifest import published_schema, read
from gatekeeper.domain.toml_lines import parse

ROOT = Path(__file__).resolve().parents[2]
PATH = "stock/models/k3/nvidia/fast/fast_track.toml"
GOOD = b"""schema = 1
model = "k3"
vendor = "nvidia"
directory = "stock/models/k3/nvidia/fast"
switch = "decode_backend=fast"
problem = "kimi_k3"
entry_point = "stock.models.k3.nvidia.fast.gate:candidate"
guard = "stock.models.k3.nvidia.fast.gate:enabled"
hooks = ["stock/models/k3/nvidia/model.py"]
[[targets]]
name = "cpu"
tensor_parallel = [2]
decode_context_parallel = ["1", "tp"]
[serves]
rows = [1, 2, 8]
query_tokens = [1, 2]
context = { min = 1, max = 64 }
page_sizes = [4, 8]
dtypes = { kv_cache = "bf16" }
[features]
decode_context_parallel = "served"
variable_context_length = "served"
[claims]
speedup = { cpu = 1.5 }
"""


def found(old: str, new: str, data: bytes = GOOD):
    changed = data.replace(old.encode(), new.encode())
    assert changed != data
    manifest, findings = read(changed, PATH)
    assert manifest is None
    return [(finding.code.removeprefix("SCOPE_MANIFEST_"), finding.line) for finding in findings]


def test_honest_manifest_is_read():
    manifest, findings = read(GOOD, PATH)
    assert findings == []
    assert manifest is not None and manifest.path == PATH and manifest.target("cpu").groups() == ((2, 1), (2, 2))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("schema = 1", "schema = 2", [("VALUE", 1)]),
        ("schema = 1", "schema_version = 1", [("KEY_MISSING", 1), ("KEY_UNKNOWN", 1)]),
        ('vendor = "nvidia"', 'vendor = "nvidia"\nvendr = 1', [("KEY_UNKNOWN", 4)]),
        ('problem = "kimi_k3"', "", [("KEY_MISSING", 1)]),
        ('directory = "stock', 'directory = "other', [("DIRECTORY", 4)]),
        ('guard = "stock.models.k3', 'guard = "stock.models.other', [("MODULE", 8)]),
        ("nvidia.fast.gate:candidate", "nvidia.faster.gate:candidate", [("MODULE", 7)]),
        ("stock/models/k3/nvidia/model.py", "stock/../etc/passwd", [("HOOK", 9)]),
        ("stock/models/k3/nvidia/model.py", "stock/models/k3/nvidia/fast/gate.py", [("HOOK", 9)]),
        ("tensor_parallel = [2]", "tensor_parallel = [true]", [("VALUE", 12)]),
        ('["1", "tp"]', '["1", "3"]', [("RANGE", 13)]),
        ("rows = [1, 2, 8]", "rows = [1, 2,\n 0]", [("VALUE", 16)]),
        ("rows = [1, 2, 8]", "rows = [1, 2, 2]", [("TWICE", 15)]),
        ("query_tokens = [1, 2]", "query_tokens = [1, 3]", [("RANGE", 16)]),
        ("max = 64", "max = 0", [("VALUE", 17)]),
        ("min = 1,", "min = 65,", [("RANGE", 17)]),
        ('variable_context_length = "served"', 'variable_context_length = "maybe"', [("VALUE", 22)]),
        ("{ cpu = 1.5 }", "{ h200 = 1.5 }", [("CLAIM", 24)]),
        ("{ cpu = 1.5 }", "{ cpu = nan }", [("VALUE", 24)]),
        ("[claims]", "[claims", [("SYNTAX", 23)]),
        ('variable_context_length = "served"', 'variable_context_length = "TODO"', [("TODO", 22)]),
        ('switch = "decode_backend=fast"', 'switch = "TODO"', [("TODO", 5)]),
        ('"stock.models.k3.nvidia.fast.gate:enabled"', '"TODO: module:attribute"', [("TODO", 8)]),
        ("rows = [1, 2, 8]", 'rows = "TODO: numbers"', [("TODO", 15)]),
        ('vendor = "nvidia"', 'vendor = "nvidia"\nnote = "TODO"', [("TODO", 4), ("KEY_UNKNOWN", 4)]),
        ("[claims]", "[serves]", [("SYNTAX", 23)]),
    ],
)
def test_each_error_has_its_line(old, new, expected):
    assert found(old, new) == expected


def test_all_errors_are_told_at_once():
    data = GOOD.replace(b'vendor = "nvidia"', b'vendor = "N V"').replace(b"max = 64", b'max = "x"')
    assert found("fast.gate:enabled", "slow.gate:enabled", data) == [("VALUE", 3), ("MODULE", 8), ("VALUE", 17)]


def test_a_mark_is_a_whole_word_and_says_what_is_expected_in_its_place():
    manifest, findings = read(GOOD.replace(b"decode_backend=fast", b"TODOS=1"), PATH)
    assert manifest is not None and findings == []
    changed = GOOD.replace(b'decode_context_parallel = "served"', b'decode_context_parallel = "TODO"')
    [finding] = read(changed, PATH)[1]
    assert finding.message == "`features.decode_context_parallel` is still to be decided"
    assert (finding.expected, finding.found) == ("'served' or 'refused'", "'TODO'")
    [finding] = read(GOOD.replace(b'"decode_backend=fast"', b'"TODO: x=y"'), PATH)[1]
    assert finding.expected == "the setting that a user makes to get this path; off by default"


def test_types_are_named_in_words_of_toml():
    wrong = GOOD.replace(b"rows = [1, 2, 8]", b"rows = 1").replace(b"{ min = 1, max = 64 }", b"1")
    wrong = wrong.replace(b"[4, 8]", b'["4"]').replace(b"cpu = 1.5", b"cpu = true").replace(b'"nvidia"', b"1", 1)
    told = [finding.expected for finding in read(wrong, PATH)[1]]
    assert told == ["text", "an array", "a table", "an integer", "a number"]


def test_limits():
    assert found("schema = 1", "schema = 1 #" + "x" * 70_000) == [("SIZE", 1)]
    assert found("schema = 1", "schema = " + "[" * 2000 + "]" * 2000) == [("NESTING", 1)]
    assert found("schema = 1", "schema.a.b.c.d.e.f.g.h.i = 1") == [("NESTING", 1)]
    assert read(b"a = \xff", PATH)[1][0].code == "SCOPE_MANIFEST_ENCODING"
    assert found("[claims]", "[serves.dtypes2]") [0][0] == "KEY_UNKNOWN"  # fmt: skip


@pytest.mark.parametrize("digits", ["0x" + "f" * 6000, "0o" + "7" * 9000, "0b" + "1" * 20000, "9223372036854775808", "-9223372036854775809",
                                    "0x_8000000000000000".replace("x_", "x")])  # fmt: skip
def test_an_integer_that_is_none_of_64_bits_is_the_authors_fault(digits):
    assert found("rows = [1, 2, 8]", f"rows = [1,\n{digits}]") == [("VALUE", 16)]


def test_integers_at_the_edge_are_read():
    document, problems = parse(b"a = 9223372036854775807\nb = -9223372036854775808\nc = [[0x7f]]\n")
    assert document is not None and problems == [] and document.values["b"] == -(1 << 63)


@pytest.mark.parametrize("version", ["true", "1.0", '"1"', "2", "[1]", "1e0"])
def test_the_version_is_an_integer_and_nothing_that_equals_one(version):
    assert found("schema = 1", f"schema = {version}") == [("VALUE", 1)]


def test_positions_of_nested_tables():
    document, problems = parse(b'[[a]]\nx = 1\n[[a]]\n[a.b]\n"q.r" = [1,\n 2]\n')
    assert problems == [] and document is not None
    assert document.line("a", 0, "x") == 2
    assert document.line("a", 1, "b", "q.r", 1) == 6
    assert document.line("a", 1, "nowhere") == 3


def test_published_schema_is_current():
    assert (ROOT / "docs" / "fast_track.schema.json").read_text() == published_schema()


def test_every_key_is_explained():
    text = (ROOT / "docs" / "fast_track.md").read_text()
    keys = set(re.findall(r"^\[*\"?(\w+)", GOOD.decode(), re.MULTILINE))
    assert {key for key in keys if key not in text} - {"decode_context_parallel", "variable_context_length"} == set()
