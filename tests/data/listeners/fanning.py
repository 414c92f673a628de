#!/usr/bin/env python3
"""Does an order in threads of their own, one for each unit of work, and counts what was done."""

import organism_listener as listener

NS = "{urn:example:talk}"


def numbered(name, number):
    return listener.element(NS + name, children=[listener.element(NS + "n", number)])


@listener.accepts(NS + "order")
def order(request):
    if not request.results:
        units = range(1, int(request.text("n")) + 1)
        return [listener.spawn(numbered("work", unit), f"unit-{unit}") for unit in units] + [listener.wait()]
    done = [result for result in request.thread_results if result.status == "completed"]
    labels = [result.label for result in done]
    numbers = [result.payloads[0][0].text for result in done]
    assert labels == [f"unit-{number}" for number in numbers], labels
    return numbered("done", len(done))


listener.serve()
