"""As main.py, but what stands here before the request is done once: deployed with --freeze-at (README.md)."""

import os
import random
import sqlite3  # noqa: F401  the application imports it where it needs it
import sys
from wsgiref.handlers import CGIHandler

from app import application

# The function is frozen where this is opened. What it has then is the environment of the request.
with open("/site/request", "rb") as request:
    variables = request.read()

os.environb.update(pair.split(b"=", 1) for pair in variables.split(b"\0") if pair)
# All requests share what was drawn before.
random.seed()
CGIHandler().run(application)

# Nothing is left that Python would have to put away.
sys.stdout.flush()
os._exit(0)
