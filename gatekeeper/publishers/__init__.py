"""Publishers: each shows a verdict in one place."""
