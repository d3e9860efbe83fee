"""The opt-in: off unless the user asks for it by name."""


def enabled(config):
    """Whether ``additional_config.decode_backend`` asks for the latency-specialised path."""
    return config.additional_config.get("decode_backend") == "latency_specialized"


def forward(model, hidden, metadata):
    """Run one decode step on the specialised path, built by the engine when it allocated its tensors."""
    return model.specialised_step(hidden, metadata)
