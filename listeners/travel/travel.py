"""A travel agency for examples: reserves and cancels seats and rooms, and charges a card.

`travel.py LEDGER` appends a line of JSON to LEDGER for each thing that it has done. Nothing outside of
that file is reserved or paid.
"""

import fcntl
import json
import os
import re
import sys
from datetime import date
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "python"))

import organism_listener as listener  # noqa: E402

NS = "{https://xml-pipeline.org/ns/travel/v1}"
SEAT_PRICE = 180
ROOM_PRICE = 95
NIGHTS_MAX = 30
CARD_LIMIT = 1000

LEDGER = Path(sys.argv[1])


def write(kind, number, **more):
    line = json.dumps({"kind": kind, "number": number, **more}) + "\n"
    with LEDGER.open("a+b") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        ledger.seek(0)
        # A process that died while it wrote has left a part of a line, which would garble this one.
        ledger.truncate(ledger.read().rfind(b"\n") + 1)
        ledger.write(line.encode())
        ledger.flush()
        os.fsync(ledger.fileno())


def next_number(kind, prefix):
    text = LEDGER.read_text() if LEDGER.exists() else ""
    # Others write to it, too: what comes after the last line end is not whole yet.
    whole = text[: text.rfind("\n") + 1]
    # Not parsed as JSON: a record may stand behind a part of another one that a crash has left.
    given = re.findall(rf'"kind": "{kind}", "number": "{prefix}-(\d+)"', whole)
    return f"{prefix}-{1 + max(map(int, given), default=0)}"


def reply(name, **children):
    parts = [listener.element(NS + key, str(value)) for key, value in children.items()]
    return listener.element(NS + name, None, {}, parts)


def nights(request):
    return (date.fromisoformat(request.text("return")) - date.fromisoformat(request.text("leave"))).days


@listener.accepts(NS + "reserve-seat")
def reserve_seat(request):
    if nights(request) < 0:
        return reply("reservation-failed", reason="nobody returns before they leave")
    number = next_number("reserve-seat", "seat")
    write("reserve-seat", number, name=request.text("name"), to=request.text("to"))
    return reply("seat-reserved", number=number, price=SEAT_PRICE)


@listener.accepts(NS + "reserve-room")
def reserve_room(request):
    count = nights(request)
    if not 1 <= count <= NIGHTS_MAX:
        return reply("reservation-failed", reason=f"a room is for 1 to {NIGHTS_MAX} nights, not for {count}")
    number = next_number("reserve-room", "room")
    write("reserve-room", number, name=request.text("name"), town=request.text("town"))
    return reply("room-reserved", number=number, price=count * ROOM_PRICE)


@listener.accepts(NS + "cancel-seat")
def cancel_seat(request):
    write("cancel-seat", request.text("number"))
    return reply("seat-cancelled", number=request.text("number"))


@listener.accepts(NS + "cancel-room")
def cancel_room(request):
    write("cancel-room", request.text("number"), name=request.text("name"))
    return reply("room-cancelled", number=request.text("number"))


@listener.accepts(NS + "charge")
def charge(request):
    amount = int(request.text("seat")) + int(request.text("room"))
    if amount > CARD_LIMIT:
        return reply("charge-failed", code="card-limit", reason=f"{amount} is over the card's limit of {CARD_LIMIT}")
    receipt = next_number("charge", "receipt")
    write("charge", receipt, amount=amount)
    return reply("charged", receipt=receipt, amount=amount)


if __name__ == "__main__":
    listener.serve()
