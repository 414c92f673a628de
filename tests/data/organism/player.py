#!/usr/bin/env -S python3 -S
"""Plays the listeners of the tests: `player.py ROLE [FILE]`.

Each delivery is noted in the file EFFECTS names, if any: the listener, the newest message and the
attempt, synced to disk before the answer. What a delivery belongs to is said on standard error. A role that holds answers once FILE is there, which may
name the number of the request: `let-go-{n}`.
"""

import os
import re
import sys
import time

NS = "urn:example:talk"
ROLE = sys.argv[1]
MESSAGE = re.compile(rb'<e:message id="([^"]+)"[^>]*>.*?</e:meta>(.*?)</e:message>', re.S)
ATTEMPT = re.compile(rb' attempt="([^"]+)"')
TRACE = re.compile(rb' traceparent="([^"]+)"')
ANSWERS = {"ping": "pong", "work": "worked", "hold": "held"}
EFFECTS = os.environ.get("EFFECTS")
EFFECTS = EFFECTS and os.open(EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def frames():
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


def note(message, attempt):
    if EFFECTS:
        os.write(EFFECTS, b"%s %s %s\n" % (ROLE.encode(), message, attempt))
        os.fsync(EFFECTS)


def numbered(name, request):
    number = re.search(r"<n>(.*?)</n>", request).group(1)
    return f'<{name} xmlns="{NS}"><n>{number}</n></{name}>'


def answer(payloads):
    request = payloads[0]
    name = re.match(r"<([a-z]+)", request).group(1)
    if name == "say":
        return request.replace("<say", "<said").replace("</say", "</said")
    if name == "order":
        return numbered("work" if len(payloads) == 1 else "done", request)
    if name == "hold":
        number = re.search(r"<n>(.*?)</n>", request).group(1)
        while not os.path.exists(sys.argv[2].format(n=number)):
            time.sleep(0.01)
    return numbered(ANSWERS[name], request)


for frame in frames():
    if frame.startswith(b"<cancel"):
        continue
    if traced := TRACE.search(frame):
        print("traced", traced.group(1).decode(), file=sys.stderr, flush=True)
    messages = MESSAGE.findall(frame)
    note(messages[-1][0], ATTEMPT.search(frame).group(1))
    reply = answer([payload.decode() for _, payload in messages])
    out = reply.encode() + b"\0"
    while out:
        out = out[os.write(1, out):]
