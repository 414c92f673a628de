#!/usr/bin/env -S python3 -S
"""Serves once with each of the arguments: variables of the environment, as an object in JSON. Each is
refused. The last ends the program, as it does in a listener that serves only once."""
import json
import os
import sys

import organism_listener as listener

listener.accepts("{urn:test}do")(lambda request: None)
*others, last = [json.loads(variables) for variables in sys.argv[1:]]
for variables in others:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        listener.serve()
    except SystemExit as refused:
        # A program that ends with a text prints it, and has the exit code 1.
        assert isinstance(refused.code, str)
        print(refused.code, file=sys.stderr)
    else:
        sys.exit(f"serves with {variables}")
    os.environ.clear()
    os.environ.update(before)
os.environ.update(last)
listener.serve()
