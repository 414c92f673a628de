#!/usr/bin/env -S python3 -S
"""A listener that does its worst: the delivered payload's name says how.

Each effect is noted in the file EFFECTS names, with message and attempt, synced to disk. A slow
or stopped listener says so in the file of its way and goes on when the test lets it.
"""

import os
import re
import signal
import sys

NS = "urn:example:hostile"
MESSAGE = re.compile(rb'<e:message id="([^"]+)"[^>]*>.*?</e:meta><([a-z0-9-]+)', re.S)
ATTEMPT = re.compile(rb' attempt="\d+\.(\d+)"')
EFFECTS = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def frames():
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


def write(data, to=1):
    while data:
        data = data[os.write(to, data):]


def effect(how, message, attempt):
    os.write(EFFECTS, b"%s %s %d\n" % (how.encode(), message, attempt))
    os.fsync(EFFECTS)


def answered(text="well"):
    return f'<answered xmlns="{NS}">{text}</answered>'.encode()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    os.read(os.pipe()[0], 1)


def stop():
    """Until somebody sends SIGCONT."""
    with open(os.environ["EFFECTS"] + ".stopped", "w") as file:
        file.write(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def act(how, message, attempt):
    if how == "killed-before":
        if attempt < 3:
            die()
    elif how == "killed-after":
        if attempt < 2:
            effect(how, message, attempt)
            die()
    elif how == "killed-always":
        die()
    elif how == "silent":
        hang()
    elif how == "slow":
        write(b"<heartbeat/>\0")
        # A named pipe: opened when the test writes into it.
        with open(os.environ["EFFECTS"] + ".pipe", "rb") as pipe:
            pipe.read()
    elif how == "stopped":
        stop()
    elif how == "memory":
        hoard = []
        while True:
            hoard.append(bytearray(1 << 20))
    elif how == "stderr-lines":
        for _ in range(20_000):
            write(b"a line of complaint that nobody asked for\n", 2)
    elif how == "stderr-line":
        for _ in range(256):
            write(b"e" * (64 << 10), 2)
    elif how == "files":
        kept = []
        try:
            while True:
                kept.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            for file in kept:
                os.close(file)
    effect(how, message, attempt)


def answer(how):
    if how == "twice":
        return answered("once") + b"\0" + answered("twice") + b"\0"
    if how == "none":
        return b"\0"
    if how == "two":
        return answered("one") + answered("two") + b"\0"
    if how == "thousand":
        return answered("x") * 1_000 + b"\0"
    if how == "ten-thousand":
        return answered("x") * 10_000 + b"\0"
    if how == "half":
        write(answered()[:20])
        die()
    if how == "half-and-hang":
        write(answered()[:20])
        hang()
    if how == "not-utf8":
        return b'<answered xmlns="%s">\xff</answered>\0' % NS.encode()
    if how == "not-xml":
        return b"answered, thanks\0"
    if how == "not-closed":
        return b"<answered><a></answered>\0"
    if how == "too-long":
        return b"<a>" + b"x" * (17 << 20) + b"</a>\0"
    return answered() + b"\0"


for frame in frames():
    if frame.startswith(b"<cancel"):
        continue
    message, name = MESSAGE.findall(frame)[-1]
    act(name.decode(), message, int(ATTEMPT.search(frame).group(1)))
    write(answer(name.decode()))
sys.exit(0)
