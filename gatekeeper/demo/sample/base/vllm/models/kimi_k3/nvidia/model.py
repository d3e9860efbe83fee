"""The decoder: stock path on NVIDIA GPUs."""

from vllm.models.kimi_k3.nvidia.linear import project


class DecoderLayer:
    def __init__(self, attention, experts, norm):
        self.attention = attention
        self.experts = experts
        self.norm = norm

    def forward(self, hidden, metadata):
        attended = self.attention(self.norm(hidden), metadata)
        return self.experts(self.norm(hidden + attended))


class KimiK3Model:
    def __init__(self, config, layers, head):
        self.config = config
        self.layers = layers
        self.head = head

    def forward(self, hidden, metadata):
        for layer in self.layers:
            hidden = layer.forward(hidden, metadata)
        return hidden

    def logits(self, hidden):
        return project(hidden, self.head)
