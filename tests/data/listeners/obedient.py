#!/usr/bin/env -S python3 -S
"""Does what the payload says, through the Python kit. PYTHONPATH says where that is."""
import os
import threading
import time
from collections import deque

import organism_listener as listener

NS = "{urn:test}"
buffered_log = open(2, "w", closefd=False)
kept = []


class ForeignElement:
    """An element of another library: an iterable of its children, of which it has none."""

    tag = NS + "done"

    def __iter__(self):
        return iter(())


class WithoutText(Exception):
    def __str__(self):
        raise RuntimeError("this exception has no text")


def done(text):
    return listener.element(NS + "done", text)


def would_do(request):
    text = request.payload.text
    if text == "unshown":
        return None
    return "would do \0" if text == "control" else f"would do {text}"


listener.previews(would_do)


@listener.accepts(NS + "do")
def do(request):
    word, _, argument = request.payload.text.partition(" ")
    if word == "echo":
        return done(argument)
    if word == "nothing":
        return None
    if word == "child":
        return done(request.text(argument))
    if word == "child-or":
        return done(request.text(argument, "none"))
    if word == "empty":
        return []
    if word == "many":
        return [done(n) for n in range(int(argument))]
    if word == "crash":
        raise RuntimeError(argument)
    if word == "buffer":
        buffered_log.write(argument)
        return done("buffered")
    if word == "crash-with-work":
        def work():
            time.sleep(10)
            print("the work has ended")

        threading.Thread(target=work).start()
        raise RuntimeError(argument)
    if word == "beat":
        for _ in range(int(argument)):
            request.heartbeat()
        return done("beaten")
    if word == "wait":
        request.heartbeat()
        while not request.cancelled:
            time.sleep(0.001)
        return done("gone")
    if word == "fail-after-cancel":
        request.heartbeat()
        while not request.cancelled:
            time.sleep(0.001)
        raise WithoutText() if argument else RuntimeError("the request was aborted")
    if word == "crash-without-text":
        raise WithoutText()
    if word == "keep":
        kept.append(request)
        return done("kept")
    if word == "kept-beat":
        kept[0].heartbeat()
        return done("beaten")
    if word == "watch":
        def watch():
            while not request.cancelled:
                time.sleep(0.001)

        for _ in range(int(argument)):
            threading.Thread(target=watch, daemon=True).start()
        return done("watched")
    if word == "stuck":
        request.heartbeat()
        while True:
            time.sleep(1)
    if word == "sleep":
        time.sleep(float(argument))
        return done("slept")
    if word == "pid":
        return done(os.getpid())
    if word == "count":
        return done(f"{1 + len(request.results)} {sum(m.new for m in [request, *request.results])}")
    if word == "if-shown":
        return done(argument) if request.holds(would_do(request)) else listener.stale_preview("no")
    if word == "read-input":
        import subprocess

        return done(len(subprocess.run(["cat"], stdout=subprocess.PIPE).stdout))
    if word == "alive":
        with request.keep_alive():
            return done("alive")
    if word == "nested":
        return done(done("inner"))
    if word == "bytes":
        return done(b"abc")
    if word == "generator":
        return done(done(n) for n in range(2))
    if word == "dict":
        return done({"unit": "kg"})
    if word == "list-attribute":
        return listener.element(NS + "done", attributes={"n": [1]})
    if word == "null-child":
        return listener.element(NS + "done", children=[None])
    if word == "text-child":
        return listener.element(NS + "done", children=["tea"])
    if word == "one-child":
        return listener.element(NS + "done", children=done("inner"))
    if word == "pass-on":
        return listener.element(NS + "done", children=list(request.payload))
    if word == "spawn-number":
        return listener.spawn(5)
    if word == "deep":
        nested = done("deep")
        for _ in range(20_000):
            nested = listener.element(NS + "done", children=[nested])
        return nested
    if word == "infinite":
        numbers = [float("inf"), float("-inf"), float("nan")]
        return [done(number) for number in numbers]
    if word == "five":
        return 5
    if word == "foreign-element":
        return ForeignElement()
    if word == "foreign-child":
        return listener.element(NS + "done", children=ForeignElement())
    if word == "empty-bytes":
        return b""
    if word == "empty-bytes-child":
        return listener.element(NS + "done", children=b"")
    if word == "empty-map-child":
        return listener.element(NS + "done", children={})
    if word == "empty-set":
        return [set()]
    if word == "values-view":
        return {"first": done("one")}.values()
    if word == "deque":
        return deque([done("one")])
    if word == "empty-deque":
        return deque()
    if word == "set-of-text":
        return {'<done xmlns="urn:test">one</done>'}
    if word == "nested-generator":
        return [[], (done(text) for text in ["one"])]
    if word == "nested-map":
        return [map(done, ["one"])]
    if word == "spawn-generator":
        return listener.spawn(done(text) for text in ["one"])
    if word == "zero":
        unset = done("")
        unset.text = 0
        return unset
    if word == "zero-tail":
        outer = listener.element(NS + "done", children=done("inner"))
        outer[0].tail = 0
        return outer
    if word == "number":
        unset = done("")
        unset.text = 5
        return unset
    if word == "number-attribute":
        unset = done("")
        unset.set("n", 5)
        return unset
    if word == "values":
        from pathlib import PurePath

        attributes = {"none": None, "yes": True, "small": 5e-05}
        return [listener.element(NS + "done", False, attributes),
                listener.spawn(done(1e22), money=0.00005, bound=True),
                done(PurePath("1e5")), done(PurePath("nan"))]
    if word == "control":
        return done("\0")
    if word == "huge":
        return done("x" * (17 << 20))
    if word == "print":
        print(argument)
        return done(f"{os.environ['ORGANISM_LISTENER']} {request.attempt} {request.thread}")
    raise ValueError(word)


listener.serve()
