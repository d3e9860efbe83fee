"""How work is carried to where it is done: threads and subprocesses of this machine, or Celery."""
