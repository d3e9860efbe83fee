"""gatekeeper: a gate for GPU kernel pull requests. The service; it never runs a contributor's code in its own process."""
