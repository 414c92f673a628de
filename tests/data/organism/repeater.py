#!/usr/bin/env python3
"""Writes each answer twice at once; with the argument `named`, each names its delivery."""
import os
import re
import sys

NAMED = sys.argv[1:] == ["named"]
ANSWER = '<answer xmlns="https://xml-pipeline.org/ns/envelope/v1" call="{}" attempt="{}">{}</answer>'


def frames():
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


for frame in frames():
    text = frame.decode()
    if text.startswith("<cancel"):
        continue
    call, attempt = (re.search(f' {key}="([^"]+)"', text).group(1) for key in ("call", "attempt"))
    said = re.findall(r"<say [^>]*>([^<]*)</say>", text)[-1]
    answer = f'<said xmlns="urn:example:talk">{said}</said>'
    if NAMED:
        answer = ANSWER.format(call, attempt, answer)
    os.write(1, (answer + "\0").encode() * 2)
