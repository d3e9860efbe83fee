"""Settings of a served model."""


class ModelConfig:
    def __init__(self, name, additional_config=None):
        self.name = name
        self.additional_config = dict(additional_config or {})
