"""The stock path: library products and Triton kernels, 23 launches."""
