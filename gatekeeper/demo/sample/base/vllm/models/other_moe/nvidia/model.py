"""Another model of the same engine."""


class OtherMoE:
    def forward(self, hidden, metadata):
        return hidden
