#!/usr/bin/env -S python3 -S
"""Answers a ping with a pong, and notes each in the file EFFECTS names: synced to disk before the
answer, as `player.pl` does."""
import os

import organism_listener as listener

NS = "{urn:example:talk}"
EFFECTS = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@listener.accepts(NS + "ping")
def ping(request):
    os.write(EFFECTS, f"solo {request.id} {request.attempt}\n".encode())
    os.fsync(EFFECTS)
    pong = listener.element(NS + "pong")
    pong.append(listener.element(NS + "n", request.payload[0].text))
    return pong


listener.serve()
