"""The closed loop as the harness drives it: single runs, and blocks of runs over a fresh pair of processes."""
