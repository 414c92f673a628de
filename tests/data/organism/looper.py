#!/usr/bin/env -S python3 -S
"""A listener that gives the same answer to everything: `looper.py PAYLOAD`."""

import os
import sys

ANSWER = sys.argv[1].encode() + b"\0"

rest = b""
while data := os.read(0, 65536):
    *frames, rest = (rest + data).split(b"\0")
    for frame in frames:
        if not frame.startswith(b"<cancel"):
            os.write(1, ANSWER)
