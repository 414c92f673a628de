#!/usr/bin/env -S python3 -S
"""Answers each request, and breaks the rule that its argument names. `silent`: writes nothing. `buffers`: never
writes what it has. `no-nul`: ends no frame. `one-read`: takes each read for a frame. `last-message`: takes the last
message for the request. `first-attempt`: names the attempt at which a call came first. `answers-cancels`: one
frame more for each cancel. `dies-of-cancels`, `deaf-to-cancels`: as they say. `forgets`: says that it remembers,
and answers whatever it gets. `never-reads`: as it says. `lines`: breaks no rule, and writes a line break after each frame."""
import os
import re
import sys

HOW = sys.argv[1]
NS = "https://xml-pipeline.org/ns/envelope/v1"
ANSWER = '<echo xmlns="https://xml-pipeline.org/ns/shell-echo/v1"><text>hi</text></echo>'
attempts = {}
buffer = open(1, "wb", buffering=1 << 20, closefd=False)


def frames():
    rest = b""
    while data := os.read(0, 65536):
        if HOW == "one-read":
            yield data
            continue
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


def write(text):
    os.write(1, text.encode() + (b"\0\n" if HOW == "lines" else b"\0"))


if HOW == "never-reads":
    os.read(os.pipe()[0], 1)

for frame in frames():
    text = frame.decode()
    if text.startswith("<cancel"):
        if HOW == "dies-of-cancels":
            sys.exit("cannot go on")
        if HOW == "answers-cancels":
            write("")
        if HOW == "deaf-to-cancels":
            os.read(os.pipe()[0], 1)
        continue
    if HOW == "silent":
        continue
    if HOW == "buffers":
        buffer.write(ANSWER.encode() + b"\0")
        continue
    if HOW == "no-nul":
        os.write(1, b"<sum>5</sum>")
        continue
    request = re.findall("<e:message.*?</e:message>", text)[-1 if HOW == "last-message" else 0]
    if "<say" not in request:
        sys.exit("no request")
    call = re.search(' call="([^"]+)"', text).group(1)
    attempt = re.search(' attempt="([^"]+)"', text).group(1)
    if HOW == "first-attempt":
        attempt = attempts.setdefault(call, attempt)
    if HOW in ("first-attempt", "forgets"):
        memory = ' remembers="true"' if HOW == "forgets" else ""
        write(f'<answer xmlns="{NS}" call="{call}" attempt="{attempt}"{memory}>{ANSWER}</answer>')
    else:
        write(ANSWER)
