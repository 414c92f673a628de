#!/usr/bin/env -S python3 -S
"""Says what it is told and who it is; where HOLD names a file, notes there that it holds a
delivery, and never answers; where TRACES names one, adds there what it is part of."""
import os
import threading

import organism_listener as listener

NS = "{urn:example:talk}"


@listener.accepts(NS + "say")
def say(request):
    if "HOLD" in os.environ:
        with open(os.environ["HOLD"], "w") as file:
            file.write(request.attempt)
        threading.Event().wait()
    if "TRACES" in os.environ:
        with open(os.environ["TRACES"], "a") as file:
            print(request.traceparent, file=file)
    return listener.element(NS + "said", f"{request.payload.text}, {os.environ['REPLICA']}")


listener.serve()
