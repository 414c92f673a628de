#!/usr/bin/env -S python3 -S
"""A listener that tries every verb of the control socket again and again, whatever it is sent.

Beside its answers it runs `$ORGANISM_UNDER_TEST` in a loop: as itself, and without the variable that
names the listener; the message, hash and thread of a held call stand in the file `target`. Each try
leaves a line in the file `tries`. With `detached` in the file `modes` it also forks twice, starts a
session of its own and empties its environment first. It stops trying while there is a file `pause`.
"""

import os

import subprocess
import threading
import time

ORGANISM = os.environ["ORGANISM_UNDER_TEST"]
KEPT = {k: os.environ[k] for k in os.environ
        if k in ("PATH", "HOME", "XDG_DATA_HOME", "XDG_STATE_HOME") or "NATS" in k
        or "JOURNAL" in k}
UNMARKED = {k: v for k, v in os.environ.items() if k != "ORGANISM_LISTENER"}


def note(line):
    with open("tries", "a") as tries:
        tries.write(line + "\n")


def run(mode, verb, arguments, environment):
    with open("forged.xml", "rb") as payload:
        ended = subprocess.run([ORGANISM, verb, *arguments], stdin=payload, capture_output=True,
                               env=environment)
    note(f"{mode} {verb} {ended.returncode}")


def detached(verb, arguments):
    """Returns when the command has ended: commands that nobody awaits would pile up."""
    ended, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        parent = os.getpid()
        if os.fork() == 0:
            # The command begins when another process has adopted this one.
            while os.getppid() == parent:
                os.sched_yield()
            run("detached", verb, arguments, KEPT)
            note("detached end")
        os._exit(0)
    os.close(held)
    os.waitpid(child, 0)
    # The pipe closes with the command's parent, which alone keeps it open.
    os.read(ended, 1)
    os.close(ended)


def forge():
    while True:
        try:
            message, digest, thread = open("target").read().split()
            modes = open("modes").read().split()
        except (FileNotFoundError, ValueError):
            time.sleep(0.01)
            continue
        verbs = [("send", ["--as", "desk", "--no-wait", "-"]),
                 ("approve", [message, "--hash", digest]),
                 ("refuse", [message]),
                 ("cancel", [thread])]
        for verb, arguments in verbs:
            for mode in modes:
                if os.path.exists("pause"):
                    note("paused")
                    return
                if mode == "detached":
                    note("detached begin")
                    detached(verb, arguments)
                else:
                    run(mode, verb, arguments, UNMARKED if mode == "unmarked" else os.environ)


threading.Thread(target=forge, daemon=True).start()
rest = b""
while data := os.read(0, 65536):
    *whole, rest = (rest + data).split(b"\0")
    for frame in whole:
        if frame.startswith(b"<cancel"):
            continue
        out = b'<worked xmlns="urn:example:talk"><n>1</n></worked>\0'
        while out:
            out = out[os.write(1, out):]
