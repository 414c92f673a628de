"""Shows the content of the file BASE as the preview of each call, and answers with that content."""
import os

import organism_listener as listener

NS = "{urn:example:talk}"


def shown():
    with open(os.environ["BASE"]) as file:
        return file.read()


@listener.previews
def show(request):
    return shown()


@listener.accepts(NS + "say")
def say(request):
    if not request.holds(shown()):
        return listener.stale_preview("the file has changed")
    return listener.element(NS + "said", f"{request.payload.text}: {shown()}")


listener.serve()
