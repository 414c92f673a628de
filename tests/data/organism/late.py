#!/usr/bin/env -S python3 -S
"""A listener that waits for the file `go`, and then calls another listener."""

import os
import time

while data := os.read(0, 65536):
    if b"<cancel" in data:
        continue
    while not os.path.exists("go"):
        time.sleep(0.01)
    os.write(1, b'<work xmlns="urn:example:talk"><n>1</n></work>\0')
