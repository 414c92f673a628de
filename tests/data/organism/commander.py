#!/usr/bin/env -S python3 -S
"""A listener that runs the command it is sent, as itself or detached, and answers how that ended.

`<say>MODE ARGUMENT…</say>`: `plain` runs `$ORGANISM_UNDER_TEST ARGUMENT…` as its own child with
standard input from the file `payload.xml`; `unmarked` the same without the variable that names the
listener; `detached` forks twice, starts a session of its own and empties its environment first.
"""

import os
import re
import subprocess

ORGANISM = os.environ["ORGANISM_UNDER_TEST"]
# What `run` does, for a process that has none of this one's memory.
RUN = 'last=$("$@" 2>&1 >/dev/null <payload.xml); printf "%s %s" $? "${last##*\n}"'
KEPT = {k: os.environ[k] for k in ("PATH", "XDG_DATA_HOME", "XDG_STATE_HOME")}


def frames():
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


def run(arguments, environment):
    with open("payload.xml", "rb") as payload:
        ended = subprocess.run([ORGANISM, *arguments], stdin=payload, capture_output=True,
                               env=environment, text=True)
    lines = ended.stderr.strip().splitlines() or [""]
    return f"{ended.returncode} {lines[-1]}"


def detached(arguments):
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        parent = os.getpid()
        if os.fork() == 0:
            os.close(ours)
            # The command begins when another process has adopted this one.
            while os.getppid() == parent:
                os.sched_yield()
            os.dup2(theirs, 1)
            os.execve("/bin/sh", ["sh", "-c", RUN, "sh", ORGANISM, *arguments], KEPT)
        os._exit(0)
    os.close(theirs)
    told = b""
    while data := os.read(ours, 65536):
        told += data
    os.wait()
    return told.decode()


for frame in frames():
    if frame.startswith(b"<cancel"):
        continue
    mode, *arguments = re.findall(rb"<say [^>]*>(.*?)</say>", frame, re.S)[-1].decode().split()
    if mode == "plain":
        told = run(arguments, dict(os.environ))
    elif mode == "unmarked":
        told = run(arguments, {k: v for k, v in os.environ.items() if k != "ORGANISM_LISTENER"})
    else:
        told = detached(arguments)
    told = told.replace("&", "&amp;").replace("<", "&lt;")
    out = f'<said xmlns="urn:example:talk">{told}</said>\0'.encode()
    while out:
        out = out[os.write(1, out):]
