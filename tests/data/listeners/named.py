#!/usr/bin/env -S python3 -S
"""Names its answers; what else it writes its argument says. `stale`: before each answer the one before
once more. `twice`: each answer twice at once. `other`: under a name that nobody gave it, first."""
import os
import re
import sys

HOW = sys.argv[1]
NS = "https://xml-pipeline.org/ns/envelope/v1"


def frames():
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


def answer(call, attempt, text):
    payload = f'<done xmlns="urn:test">{text}</done>'
    frame = f'<answer xmlns="{NS}" call="{call}" attempt="{attempt}">{payload}</answer>'
    return frame.encode() + b"\0"


last = b""
for frame in frames():
    if frame.startswith(b"<cancel"):
        continue
    call = re.search(rb' call="([^"]+)"', frame).group(1).decode()
    attempt = re.search(rb' attempt="([^"]+)"', frame).group(1).decode()
    good = answer(call, attempt, attempt)
    before = {"stale": last, "other": answer("nobody", "0.0", "other")}.get(HOW, b"")
    after = good if HOW == "twice" else b""
    os.write(1, before + good + after)
    last = good
