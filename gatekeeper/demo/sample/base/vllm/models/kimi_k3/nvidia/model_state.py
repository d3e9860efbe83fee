"""Per-request state of the stock decode path."""


class ModelState:
    def __init__(self, slots, pages):
        self.slots = slots
        self.pages = pages

    def release(self, slot):
        self.slots.discard(slot)
