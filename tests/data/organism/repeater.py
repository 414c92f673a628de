#!/usr/bin/env -S python3 -S
"""Writes each answer twice at once. With the argument `named`, each answer names its delivery, and the one
before it is written once more in front of it."""
import os
import re
import sys

ANSWERS = {"say": "said", "ping": "pong"}
NAMED = sys.argv[1:] == ["named"]
ANSWER = '<answer xmlns="https://xml-pipeline.org/ns/envelope/v1" call="{}" attempt="{}">{}</answer>'


def frames():
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


last = b""
for frame in frames():
    text = frame.decode()
    if text.startswith("<cancel"):
        continue
    call, attempt = (re.search(f' {key}="([^"]+)"', text).group(1) for key in ("call", "attempt"))
    name, content = re.findall(r"<(say|ping) [^>]*>(.*?)</\1>", text)[-1]
    answer = f'<{ANSWERS[name]} xmlns="urn:example:talk">{content}</{ANSWERS[name]}>'
    if NAMED:
        answer = ANSWER.format(call, attempt, answer)
    answer = (answer + "\0").encode()
    os.write(1, last + answer * 2)
    last = answer if NAMED else b""
