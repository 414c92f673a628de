#!/usr/bin/env -S python3 -S
"""Does an order in threads of their own, one for each unit of work, and counts what was done.

WORK names the payload of a unit, TIMEOUT how long each thread may take.
"""

import os

import organism_listener as listener

NS = "{urn:example:talk}"
WORK = os.environ.get("WORK", "work")
TIMEOUT = os.environ.get("TIMEOUT")


def numbered(name, number):
    return listener.element(NS + name, children=[listener.element(NS + "n", number)])


@listener.accepts(NS + "order")
def order(request):
    if not request.results:
        units = range(1, int(request.text("n")) + 1)
        spawns = [listener.spawn(numbered(WORK, unit), f"unit-{unit}", timeout=TIMEOUT) for unit in units]
        return spawns + [listener.wait()]
    done = [result for result in request.thread_results if result.status == "completed"]
    labels = [result.label for result in done]
    numbers = [result.payloads[0][0].text for result in done]
    assert labels == [f"unit-{number}" for number in numbers], labels
    return numbered("done", len(done))


listener.serve()
