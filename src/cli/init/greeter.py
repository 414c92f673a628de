#!/usr/bin/env python3
"""Answers each <greet> with a <greeting>. Frames end with NUL, on standard input and output."""

import sys
import xml.etree.ElementTree as ET
from xml.sax.saxutils import escape

NS = "urn:example:greeter"


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
    greet = list(ET.fromstring(frame))[0][-1]
    who = greet.findtext(f"{{{NS}}}who")
    answer = f'<greeting xmlns="{NS}">Hello, {escape(who)}!</greeting>'
    sys.stdout.buffer.write(answer.encode() + b"\0")
    sys.stdout.buffer.flush()
