#!/usr/bin/env -S python3 -S
"""Answers what its delivery builds on, and the places in the thread of the messages that it got. Its
argument says what it claims to remember. `never`: nothing. `always`: every call. `forgetful`: every
call, and then lacks it. `greedy`: asks for the messages of every delivery that has them all. A new
message that says `crash` ends it; one that says `hold` is answered when it is cancelled."""
import os
import re
import sys

HOW = sys.argv[1]
NS = "https://xml-pipeline.org/ns/envelope/v1"
REMEMBERS = ' remembers="true"' if HOW != "never" else ""


def frames():
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


def is_new(word, text):
    before, found, _ = text.partition(word)
    return found and ' new="true"' in before.rpartition("<e:message")[2]


source = frames()
for frame in source:
    text = frame.decode()
    if text.startswith("<cancel"):
        continue
    if is_new("crash", text):
        sys.exit("told to")
    if is_new("hold", text):
        os.write(1, b"<heartbeat/>\0")
        next(source)
    names = f'xmlns:e="{NS}" ' + re.search(r'call="[^"]+" attempt="[^"]+"', text).group(0)
    after = re.search(r' after="([^"]+)"', text)
    if (HOW == "forgetful" and after) or (HOW == "greedy" and not after):
        os.write(1, f"<e:missing-memory {names}/>".encode() + b"\0")
        continue
    places = ",".join(re.findall(r' seq="(\d+)"', text))
    positions = ",".join(re.findall(r' position="(\d+)"', text))
    shown = f"after {after.group(1)} at {positions}: {places}" if after else f"all: {places}"
    payload = f'<done xmlns="urn:test">{os.getpid()} {len(frame)} {shown}</done>'
    os.write(1, f"<e:answer {names}{REMEMBERS}>{payload}</e:answer>".encode() + b"\0")
