"""What is kept: immutable documents, jobs, deliveries and what was published, on SQLite and Postgres alike."""
