"""Modules of the framework are not there in a probe: stand-ins show who would patch them as the directory is imported."""

from __future__ import annotations

import pytest

from gatekeeper.domain.race import ProbeRequest, TreeSource
from workers.probe import probe
from workers.probe_named import named_modules
from workers.sources import tree_id

DIRECTORY = "kernels/cand"
GATE = "class C:\n    def supports(self, facts, shape):\n        return None\n\n\ncandidate = C()\n"


@pytest.fixture
def probed(tmp_path):
    def run(files):
        folder = tmp_path / DIRECTORY
        folder.mkdir(parents=True)
        for name, text in {"__init__.py": "", "gate.py": GATE, **files}.items():
            (folder / name).write_text(text)
        source = TreeSource(
            repository_id=1, tree=tree_id(folder), directory=DIRECTORY, entry_point="kernels.cand.gate:candidate"
        )
        modules = tuple(f"kernels.cand.{name[:-3]}" for name in files if name != "__init__.py")
        return probe(ProbeRequest(source=source, platform_modules=modules), tmp_path)

    return run


# One directory does all of them: what is named -> file.
PATCHES = {
    "core.get.run": "import sys\nm = sys.modules.get('core.get')\nif m:\n    m.run = lambda x: 'patched'\n",
    "core.handed.run": "import sys\ndef fix(m):\n    if m:\n        m.run = lambda x: 'patched'\nfix(sys.modules.get('core' + '.handed'))\n",
    "core.searched.run": "import sys\nclass S:\n    for m in [v for k, v in sys.modules.items() if k == 'core.searched']:\n        m.run = 1\n",
    "core.plain.run": "import core.plain\ncore.plain.run = 1\n",
    "core.member.run": "try:\n    from core import member\nexcept ImportError:\n    member = None\nif member is not None:\n    member.run = 1\n",
    "core.of_class.Base.forward": "try:\n    from core.of_class import Base\n    Base.forward = None\nexcept ImportError:\n    pass\n",
    "core.table.TABLE[]": "try:\n    from core.table import TABLE\n    TABLE['attn'] = 1\nexcept ImportError:\n    pass\n",
    "core.grown.TABLE.update": "try:\n    import core.grown as g\n    g.TABLE.update(attn=1)\nexcept ImportError:\n    pass\n",
    "core.space.run": "import importlib\ntry:\n    vars(importlib.import_module('core.space'))['run'] = 1\nexcept ImportError:\n    pass\n",
    "kernels.stock.run": "try:\n    from .. import stock\n    stock.run = 1\nexcept ImportError:\n    pass\n",
    "sys.modules['core.swapped']": "import sys, types\nif 'core.swapped' in sys.modules:\n    sys.modules['core.swapped'] = types.ModuleType('x')\n",
}  # fmt: skip


def test_what_importing_the_directory_would_do_to_stock_is_named(probed):
    result = probed({f"f{n}.py": text for n, text in enumerate(PATCHES.values())})
    named = {fault.where for fault in result.faults if fault.code == "EFF_FOREIGN_MUTATION"}
    assert set(PATCHES) <= named, set(PATCHES) - named


def test_using_the_framework_is_no_change_of_it(probed):
    text = """
try:
    import framework.layers as layers
    from framework.logger import init_logger
    from framework.registry import register
    from framework.model import Base
    import unknown_gpu_package.language as tl

    logger = init_logger(__name__)
    logger.level = 3

    @register("mine")
    class Mine(Base):
        size = 4

        def forward(self, x):
            self.x = x

    Mine.size = 5
    OWN = {}
    OWN[layers.KIND] = layers.make(3)
    state = layers.State()
    state.x = 1
    with layers.scope():
        kept = [each for each in layers.ALL]
except ImportError:
    pass
"""
    assert probed({"use.py": text}).faults == ()


def test_names_come_from_imports_and_texts(tmp_path):
    folder = tmp_path / DIRECTORY
    folder.mkdir(parents=True)
    (folder / "k.py").write_text(
        "import a.b\ndef f():\n    from c.d import E\n    from .. import s\n    return 'e.' + 'f', 'no name', f'g.h'\n"
    )
    assert set(named_modules(tmp_path, DIRECTORY)) == {"a.b", "c.d", "kernels", "kernels.s", "e.f", "g.h"}
