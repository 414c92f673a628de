#!/usr/bin/env -S python3 -S
"""Breaks the protocol in the way its argument names; waits for a delivery first, mostly."""
import os
import sys
import time

how = sys.argv[1]


def read():
    frame = b""
    while not frame.endswith(b"\0"):
        byte = os.read(0, 1 << 16)
        if not byte:
            if how == "stays":
                os.read(os.pipe()[0], 1)
            sys.exit(0)
        frame += byte
    return frame


def write(data):
    while data:
        data = data[os.write(1, data):]


ANSWER = b'<done xmlns="urn:test">once</done>'
if how == "speaks-first":
    write(ANSWER + b"\0")
if how == "greets":
    write(b"ready\n")
while True:
    if read().startswith(b"<cancel"):
        continue
    if how == "twice":
        write(ANSWER + b"\0" + ANSWER.replace(b"once", b"twice") + b"\0")
    elif how == "twice-apart":
        # The second answer comes once the first has been reported; a later process gives one answer.
        is_reported, is_written = sys.argv[2:]
        is_first = not os.path.exists(is_reported)
        write(ANSWER + b"\0")
        if is_first:
            while not os.path.exists(is_reported):
                os.sched_yield()
            write(ANSWER.replace(b"once", b"twice") + b"\0")
            open(is_written, "w").close()
    elif how == "mutters":
        # The answer has no NUL, and comes once the one before has been reported.
        is_reported = sys.argv[2]
        write(ANSWER + b"\0")
        while not os.path.exists(is_reported):
            os.sched_yield()
        write(ANSWER.replace(b"once", b"twice"))
    elif how in ("stays", "speaks-first", "greets"):
        write(ANSWER + b"\0")
    elif how == "half":
        write(ANSWER[:20])
        sys.exit(0)
    elif how == "exit":
        print("cannot go on", file=sys.stderr)
        sys.exit(9)
    elif how == "signal":
        os.kill(os.getpid(), 11)
    elif how == "not-utf8":
        write(b'<done xmlns="urn:test">\xff</done>\0')
    elif how == "not-xml":
        write(b"done, thanks\0")
    elif how == "unbalanced":
        write(b"<done><a></a>\0")
    elif how == "too-many":
        write(b"<d/>" * 1001 + b"\0")
    elif how == "too-long":
        write(b"<d>" + b"x" * (17 << 20) + b"</d>\0")
    elif how == "greedy":
        for _ in range(64):
            os.write(2, b"e" * (64 << 10))
        os.write(2, b"\nshort\n")
        write(ANSWER + b"\0")
    elif how == "floods":
        until = time.monotonic() + 20
        while time.monotonic() < until:
            write(b"<heartbeat/>\0" * 10_000)
        sys.exit(1)
    elif how == "deaf":
        os.close(0)
        write(b"<heartbeat/>\0")
        os.read(os.pipe()[0], 1)
