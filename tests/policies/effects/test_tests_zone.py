"""Tests of a specialised directory are read too: what reaches the session of others is told, and tests that go away or never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatekeeper.domain.policy import Outcome
from gatekeeper.domain.zone_tests import read_tests
from tests.git_builder import Content
from tests.policies.isolation.scenes import INSIDE, Answer, judge, start

PATH, PACKAGE = "tests/cand/test_k.py", "kernels.cand"
MUTATION, CODE, SESSION, SKIPPED = "ISO_FOREIGN_MUTATION", "SRC_DYNAMIC_CODE", "EFF_TEST_SESSION", "EFF_TESTS_SKIPPED"
TEST = "\n\ndef test():\n    assert True\n"

# name -> (code, trick, honest twin)
ROWS = {
    "patches stock": (MUTATION, "import core.a\ncore.a.run = None\n", "import core.a\ndef test_a(monkeypatch):\n    monkeypatch.setattr(core.a, 'run', None)\n"),
    "patches stock in a test": (MUTATION, "import core.a\ndef test_a():\n    core.a.run = None\n", "import core.a\ndef test_a(monkeypatch):\n    monkeypatch.setattr('core.a.run', None)\n"),
    "patches stock in a fixture": (MUTATION, "import core.a, pytest\n@pytest.fixture(autouse=True, scope='session')\ndef f():\n    core.a.run = None\n",
                                   "import kernels.cand.k as k, pytest\n@pytest.fixture\ndef f():\n    k.LIMIT = 3\n    yield\n    k.LIMIT = 4\n"),
    "patches by setattr": (MUTATION, "import core.a\ndef test_a():\n    setattr(core.a, 'run', lambda seed: 1)\n", "class A:\n    pass\ndef test_a():\n    setattr(A, 'run', lambda seed: 1)\n"),
    "a table of modules": (MUTATION, "import sys\nsys.modules['triton'] = None\n", "import sys\ndef test_a(monkeypatch):\n    monkeypatch.setitem(sys.modules, 'triton', None)\n    monkeypatch.delitem(sys.modules, 'core', raising=False)\n"),
    "mock that is started": (MUTATION, "from unittest import mock\nmock.patch('core.a.run').start()\n", "from unittest import mock\n@mock.patch('core.a.run')\ndef test_a(m):\n    with mock.patch.object(m, 'x'):\n        pass\n"),
    "mock that is kept": (MUTATION, "from unittest import mock\np = mock.patch('core.a.run')\np.start()\n", "from unittest import mock\ndef test_a():\n    with mock.patch('core.a.run'):\n        pass\n"),
    "environment at collection": (MUTATION, "import os\nos.environ['X'] = '1'\n", "import os\ndef test_a(monkeypatch):\n    monkeypatch.setenv('X', '1')\n"),
    "setting at collection": (MUTATION, "import torch\ntorch.set_default_dtype(torch.float64)\n", "import torch\ntorch.manual_seed(0)\ndef test_a():\n    torch.manual_seed(1)\n"),
    "process at collection": (CODE, "import subprocess\nsubprocess.run(['true'])\n", "import subprocess, sys\ndef test_a():\n    subprocess.run([sys.executable, '-c', ''])\n"),
    "code at collection": (CODE, "exec('x = 1')\n", "def test_a():\n    space = {}\n    exec('x = 1', space)\n"),
    "insides of pytest": (MUTATION, "import _pytest.runner\n_pytest.runner.pytest_runtest_call = lambda item: None\n", "from _pytest.monkeypatch import MonkeyPatch\ndef test_a(monkeypatch: MonkeyPatch):\n    pass\n"),
    "insides of pytest imported": (SESSION, "import _pytest.runner\n", "import pytest\n"),
    "pluggy": (SESSION, "import pluggy\n", "from _pytest.logging import LogCaptureFixture\n"),
    "plugin": (SESSION, "pytest_plugins = ['tests.cand.evil']\n", "plugins = ['a']\n"),
    "hook": (SESSION, "def pytest_runtest_call(item):\n    pass\n", "def pytest_generate_tests(metafunc):\n    pass\n"),
    "thread at collection": ("EFF_BACKGROUND_WORK", "import threading\nthreading.Thread(target=print).start()\n", "import threading, torch\nGPU = torch.cuda.get_device_capability()\ndef test_a():\n    threading.Thread(target=print).start()\n"),
    "plugin manager": (SESSION, "def test_a(request):\n    request.config.pluginmanager.register(object())\n", "def test_a(request):\n    return request.config.getoption('-k')\n"),
    "items of the session": (SESSION, "def test_a(request):\n    request.session.items[:] = []\n", "def test_a(request):\n    assert request.node.name\n"),
    "end of the session": (SESSION, "import pytest\ndef test_a():\n    pytest.exit('done', returncode=0)\n", "import pytest\ndef test_a():\n    with pytest.raises(SystemExit):\n        raise SystemExit\n"),
    "end of the process": (SESSION, "import os\ndef test_a():\n    os._exit(0)\n", "import os\ndef test_a():\n    os.getpid()\n"),
    "patch that is never undone": (SESSION, "import pytest\npytest.MonkeyPatch().setattr('core.a.run', None)\n", "import pytest\n@pytest.fixture(scope='session')\ndef patch():\n    with pytest.MonkeyPatch.context() as p:\n        yield p\n"),
    "pytest is patched": (SESSION, "def test_a(monkeypatch):\n    monkeypatch.setattr('_pytest.runner.call', None)\n", "def test_a(monkeypatch):\n    monkeypatch.setattr('core.a.run', None)\n"),
    "all skipped": (SKIPPED, "import pytest\npytestmark = pytest.mark.skip\n", "import pytest, torch\npytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU')\n"),
    "all skipped, in a list": (SKIPPED, "import pytest\npytestmark = [pytest.mark.slow, pytest.mark.skip(reason='x')]\n", "import pytest\npytestmark = [pytest.mark.slow]\n"),
    "skipped if true": (SKIPPED, "import pytest\n@pytest.mark.skipif(True, reason='x')\ndef test_a():\n    pass\n", "import pytest, sys\n@pytest.mark.skipif(sys.platform == 'win32', reason='x')\ndef test_a():\n    pass\n"),
    "skipped by unittest": (SKIPPED, "import unittest\n@unittest.skip('x')\ndef test_a():\n    pass\n", "import unittest\n@unittest.skipIf(unittest is None, 'x')\ndef test_a():\n    pass\n"),
    "may fail": (SKIPPED, "import pytest\n@pytest.mark.xfail\ndef test_a():\n    pass\n", "import pytest, sys\n@pytest.mark.xfail(sys.version_info < (3, 12), reason='x')\ndef test_a():\n    pass\n"),
    "skips at once": (SKIPPED, "import pytest\ndef test_a():\n    pytest.skip('later')\n", "import pytest\ndef test_a(gpu):\n    if not gpu:\n        pytest.skip('no GPU')\n"),
    "file skips at once": (SKIPPED, "import pytest\npytest.skip('later', allow_module_level=True)\n", "import pytest\ntriton = pytest.importorskip('triton')\n"),
    "no cases": (SKIPPED, "import pytest\n@pytest.mark.parametrize('x', [])\ndef test_a(x):\n    pass\n", "import pytest\n@pytest.mark.parametrize('x', [1])\ndef test_a(x):\n    pass\n"),
    "every case skipped": (SKIPPED, "import pytest\n@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.skip)])\ndef test_a(x):\n    pass\n", "import pytest\n@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.slow)])\ndef test_a(x):\n    pass\n"),
    "not collected": (SKIPPED, "class TestA:\n    __test__ = False\n", "class TestA:\n    size = 3\n"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "trick", "twin"), ROWS.values(), ids=ROWS.keys())
def test_each_spelling_is_named_and_its_twin_is_not(code: str, trick: str, twin: str) -> None:
    assert code in {each.code for each in read_tests((trick + TEST).encode(), PATH, PACKAGE).seen}
    assert read_tests((twin + TEST).encode(), PATH, PACKAGE).seen == []


def change(folder: Path, files: dict[str, Content | None]) -> Answer:
    git, base = start(folder)
    return judge(git.path, base, git.commit({**INSIDE, **files}, parent=base))


@pytest.mark.parametrize("name", ["patches stock", "process at collection", "insides of pytest", "all skipped"])
def test_as_pull_requests(name: str, tmp_path: Path) -> None:
    code, trick, twin = ROWS[name]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    answer = change(tmp_path / "a", {PATH: trick + TEST})
    (finding, *_) = answer.find(code, PATH)
    assert answer.outcome is Outcome.PENDING and finding.line and finding.waivable_by
    assert change(tmp_path / "b", {PATH: twin + TEST}).outcome is Outcome.PASSED


def test_tests_that_go_away_wait_and_those_that_move_or_are_renamed_do_not(tmp_path: Path) -> None:
    cases: dict[str, tuple[dict[str, Content | None], bool]] = {
        "file gone": ({PATH: None}, True),
        "emptied": ({PATH: "x = 1\n"}, True),
        "deleted in the file": ({PATH: TEST + "\n\ndel test\n"}, True),
        "bound anew": ({PATH: TEST + "\n\ntest = None\n"}, True),
        "renamed": ({PATH: "def test_more():\n    assert True\n"}, False),
        "moved": ({PATH: None, "tests/cand/test_m.py": TEST}, False),
        "more": ({PATH: TEST + "\n\ndef test_b():\n    assert True\n"}, False),
    }
    for name, (files, waits) in cases.items():
        (tmp_path / name).mkdir()
        answer = change(tmp_path / name, files)
        told = [each.found for each in answer.find("EFF_TESTS_REMOVED")]
        assert told == (["test"] if waits else []), name
        assert answer.outcome is (Outcome.PENDING if waits else Outcome.PASSED), (name, answer.findings)


def test_what_tests_did_before_is_not_this_changes_doing(tmp_path: Path) -> None:
    git, base = start(tmp_path)
    before = git.commit({PATH: ROWS["all skipped"][1] + TEST}, parent=base)
    head = git.commit({**INSIDE, PATH: "# a comment\n" + ROWS["all skipped"][1] + TEST}, parent=before)
    assert judge(git.path, before, head).outcome is Outcome.PASSED
