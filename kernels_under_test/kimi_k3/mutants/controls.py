"""Honest controls: what must not be stopped."""

from .seam import of_baseline, of_candidate

baseline_again = of_baseline()
"""The stock path against itself. Must not be called better."""

candidate_again = of_candidate()
"""The house candidate through the seam. Must be better, like the candidate itself."""
