"""The demonstration: a sample upstream, sample pull requests, signed webhooks, and the verdicts that should come of them."""
