"""``gatekeeper`` and ``python -m gatekeeper``."""

from __future__ import annotations

import sys

from gatekeeper.cli import main as run


def main() -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run())


if __name__ == "__main__":
    main()
