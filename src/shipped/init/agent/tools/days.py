"""A tool of the agent: answers <count-days> with <days>, or with <days-failed>."""

from datetime import date

import organism_listener as listener  # the kit beside this file; its first lines explain it

NS = "{https://xml-pipeline.org/ns/payloads/v1}"


@listener.accepts(NS + "count-days")
def count_days(request):
    try:
        first = date.fromisoformat(request.text("from"))
        last = date.fromisoformat(request.text("to"))
    except ValueError as error:
        return listener.element(NS + "days-failed", f"{error}; write YYYY-MM-DD")
    return listener.element(NS + "days", (last - first).days)


listener.serve()
