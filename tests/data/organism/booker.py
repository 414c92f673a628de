#!/usr/bin/env -S python3 -S
"""Books, cancels, charges and notifies: `booker.py LEDGER`.

Each request is a line of LEDGER, synced to disk before the answer: its name and its value. A booking
is numbered by its line. No charge succeeds without a file `accept-charge`, and nothing does whose name is
in a file `refuse-NAME`. No answer is given while there is a file `hold-NAME-VALUE`.
"""

import os
import re
import sys
import time

NS = "urn:example:booking"
MESSAGE = re.compile(rb"<e:message[^>]*>.*?</e:meta>(.*?)</e:message>", re.S)
LEDGER = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_APPEND)


def write(line):
    os.write(LEDGER, line.encode() + b"\n")
    os.fsync(LEDGER)
    # Other processes may have appended to it since.
    end = os.lseek(LEDGER, 0, os.SEEK_CUR)
    return os.pread(LEDGER, end, 0).count(b"\n")


def answer(request):
    name = re.match(r"<(?:\w+:)?([a-z]+)", request).group(1)
    value = re.search(r"<(?:\w+:)?(?:n|number)(?: [^>]*)?>(.*?)</", request).group(1)
    line = write(f"{name} {value}")
    while os.path.exists(f"hold-{name}-{value}"):
        time.sleep(0.02)
    if os.path.exists(f"refuse-{name}"):
        return f'<booking-failed xmlns="{NS}"><number>{value}</number></booking-failed>'
    if os.path.exists(f"accept-{name}"):
        return f'<notified xmlns="{NS}"><n>{value}</n></notified>'
    return {
        "book": f'<booked xmlns="{NS}"><number>{value}-{line}</number></booked>',
        "cancel": f'<cancelled xmlns="{NS}"><number>{value}</number></cancelled>',
        "charge": f'<charge-failed xmlns="{NS}"><n>{value}</n></charge-failed>',
        "notify": f'<notified xmlns="{NS}"><n>{value}</n></notified>',
    }[name]


rest = b""
while data := os.read(0, 65536):
    *whole, rest = (rest + data).split(b"\0")
    for frame in whole:
        if frame.startswith(b"<cancel"):
            continue
        request = MESSAGE.findall(frame)[0].decode()
        out = answer(request).encode() + b"\0"
        while out:
            out = out[os.write(1, out):]
