"""Breaks a rule of previews, in the manner that its argument names."""
import hashlib
import os
import re
import sys

CORE = 'xmlns="https://xml-pipeline.org/ns/core/v1"'
SAID = '<said xmlns="urn:example:talk">done</said>'
manner = sys.argv[1]
count = 0


def shown():
    global count
    count += 1
    if manner == "none":
        return ""
    if manner == "other":
        return SAID
    return f"<preview {CORE}>it {count if manner == 'times' else ''}</preview>"


def answer(frame):
    head = frame.split(">", 1)[0]
    if head.startswith("<e:preview"):
        return shown()
    approved = re.search('approved_preview="([0-9a-f]+)"', head)
    if not approved or manner == "careless":
        return SAID
    is_same = hashlib.sha256(shown().encode()).hexdigest() == approved[1]
    if manner == "stubborn" or not is_same:
        return f"<stale-preview {CORE}>it has changed</stale-preview>"
    return SAID


data = b""
while True:
    while b"\0" not in data:
        more = os.read(0, 65536)
        if not more:
            sys.exit()
        data += more
    frame, data = data.split(b"\0", 1)
    if not frame.startswith(b"<cancel"):
        os.write(1, answer(frame.decode()).encode() + b"\0")
