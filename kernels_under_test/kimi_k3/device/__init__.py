"""One rank of tensor parallelism 8 on a device: the problem, its oracle, and the CUDA paths as implementations of the contract."""
