#!/usr/bin/env python3
"""Answers each <greet> with a <greeting>. Frames end with NUL, on standard input and output."""

import sys
import xml.etree.ElementTree as ET
from html import escape

NS = "urn:example:greeter"
BUS = "https://xml-pipeline.org/ns/envelope/v1"


def frames(stream):
    frame = bytearray()
    while byte := stream.read(1):
        if byte == b"\0":
            yield bytes(frame)
            frame.clear()
        else:
            frame += byte


for frame in frames(sys.stdin.buffer):
    if frame.startswith(b"<cancel"):
        continue
    # The delivery's first message opened the call; its last child is the payload.
    delivery = ET.fromstring(frame)
    greet = list(delivery)[0][-1]
    who = greet.findtext(f"{{{NS}}}who")
    greeting = f'<greeting xmlns="{NS}">Hello, {escape(who)}!</greeting>'
    # The answer names the delivery it answers, so that it never counts for another one.
    call, attempt = delivery.get("call"), delivery.get("attempt")
    answer = f'<e:answer xmlns:e="{BUS}" call="{call}" attempt="{attempt}">{greeting}</e:answer>'
    sys.stdout.buffer.write(answer.encode() + b"\0")
    sys.stdout.buffer.flush()
