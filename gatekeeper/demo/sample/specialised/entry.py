"""What the gate races: the specialised implementation, within the scope that the manifest declares."""

from .gate import candidate as _whole
from .served import refusal


class Specialised:
    def supports(self, facts, shape):
        return refusal(shape) or _whole.supports(facts, shape)

    def workspace(self, facts, shape):
        return _whole.workspace(facts, shape)

    def build(self, facts, shape, tensors):
        return _whole.build(facts, shape, tensors)


candidate = Specialised()
