"""The side that runs code: the race harness, its jailed arms and probes. Imports ``gatekeeper.domain`` and nothing else."""
