"""The candidate: CuTe DSL kernels, 11 launches at one row and 12 above."""
