"""`ledger FILE`: books each invoice once; the same number from the same supplier is rejected."""

import sys
from types import SimpleNamespace

from book import Book
from words import NS, Fault, accepted, fields, listener, rejection


def book(ledger, booked, request):
    """`booked` knows the entry of each supplier's invoice number."""
    entry = ledger.entered(request.id)
    if entry is None:
        found = fields(request.payload)
        key = (found["supplier"], found["number"])
        earlier = booked.get(key)
        if earlier is not None:
            reason = (f"Invoice {key[1]} of {key[0]} is booked already, "
                      f"as entry {earlier['entry']} of {earlier['issue_date']}.")
            fault = Fault("duplicate", reason, "/Invoice/ID")
            invoice = SimpleNamespace(number=key[1], supplier=key[0])
            return rejection(invoice, request.listener, fault)
        entry = booked[key] = ledger.enter(request.id, **found)
    return accepted(entry)


def main(path):
    ledger = Book(path)
    booked = {(entry["supplier"], entry["number"]): entry for entry in ledger.entries}
    listener.accepts(NS + "booking")(lambda request: book(ledger, booked, request))
    listener.serve()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: ledger.py FILE")
    main(sys.argv[1])
