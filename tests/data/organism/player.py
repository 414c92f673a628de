#!/usr/bin/env -S python3 -S
"""Plays the listeners of the tests: `player.py ROLE [FILE]`.

Each delivery is noted in the file EFFECTS names, if any: the listener, the newest message and the
attempt, synced to disk before the answer. What a delivery belongs to is said on standard error. A role that holds answers once FILE is there, which may
name the number of the request: `let-go-{n}`.
"""

import os
import sys
import time

# Without `re`, whose import takes half of the time of a start: the tests start it thousands of times.

NS = "urn:example:talk"
ROLE = sys.argv[1]
ANSWERS = {"ping": "pong", "work": "worked", "hold": "held"}
EFFECTS = os.environ.get("EFFECTS")
EFFECTS = EFFECTS and os.open(EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def frames():
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


def between(text, begin, end):
    """What stands between the first of two texts and the next of the other, or None."""
    _, found, rest = text.partition(begin)
    inner, ended, _ = rest.partition(end)
    return inner if found and ended else None


def messages_of(frame):
    """The id and the payload of each message."""
    for message in frame.split(b'<e:message id="')[1:]:
        identity, _, rest = message.partition(b'"')
        yield identity, between(rest, b"</e:meta>", b"</e:message>")


def note(message, attempt):
    if EFFECTS:
        os.write(EFFECTS, b"%s %s %s\n" % (ROLE.encode(), message, attempt))
        os.fsync(EFFECTS)


def numbered(name, request):
    number = between(request, "<n>", "</n>")
    return f'<{name} xmlns="{NS}"><n>{number}</n></{name}>'


def answer(payloads):
    request = payloads[0]
    name = request[1:].replace(">", " ").split()[0]
    if name == "say":
        return request.replace("<say", "<said").replace("</say", "</said")
    if name == "order":
        return numbered("work" if len(payloads) == 1 else "done", request)
    if name == "hold":
        number = between(request, "<n>", "</n>")
        while not os.path.exists(sys.argv[2].format(n=number)):
            time.sleep(0.01)
    return numbered(ANSWERS[name], request)


for frame in frames():
    if frame.startswith(b"<cancel"):
        continue
    if traced := between(frame, b' traceparent="', b'"'):
        print("traced", traced.decode(), file=sys.stderr, flush=True)
    messages = list(messages_of(frame))
    note(messages[-1][0], between(frame, b' attempt="', b'"'))
    reply = answer([payload.decode() for _, payload in messages])
    out = reply.encode() + b"\0"
    while out:
        out = out[os.write(1, out):]
