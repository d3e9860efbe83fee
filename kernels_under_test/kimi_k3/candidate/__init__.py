"""The house candidate: Kimi K3 decode layers for few rows as 13 fused stages a KDA layer, in torch on the CPU."""
