"""Chooses which requests run in the next step."""


class Scheduler:
    """First come, first served, up to a budget of tokens."""

    def __init__(self, budget):
        self.budget = budget
        self.waiting = []

    def add(self, request):
        self.waiting.append(request)

    def next_batch(self):
        batch, used = [], 0
        while self.waiting and used + self.waiting[0].tokens <= self.budget:
            request = self.waiting.pop(0)
            used += request.tokens
            batch.append(request)
        return batch
