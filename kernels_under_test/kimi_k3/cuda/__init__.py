"""Kimi K3 decode on NVIDIA GPUs: one rank of tensor parallelism 8, one KDA layer with experts."""
