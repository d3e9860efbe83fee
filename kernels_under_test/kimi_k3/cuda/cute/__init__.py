"""The candidate: CuTe DSL kernels, 12 launches at one row and 13 above."""
