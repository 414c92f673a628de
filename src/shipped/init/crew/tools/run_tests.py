"""A tool of the crew: answers <run-tests> with a <test-report>. It runs this one command only."""

import subprocess
import sys

import organism_listener as listener  # the kit beside this file; its first lines explain it

NS = "{https://xml-pipeline.org/ns/payloads/v1}"
COMMAND = [sys.executable, "-B", "-m", "unittest"]  # put your project's own in its place


@listener.accepts(NS + "run-tests")
def run_tests(request):
    only = request.text("only", "")
    command = COMMAND + (["-k", only] if only else [])
    with request.keep_alive():  # long tests are no time-out
        done = subprocess.run(
            command, cwd=sys.argv[1], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
    passed = listener.element(NS + "passed", "true" if done.returncode == 0 else "false")
    output = listener.element(NS + "output", done.stdout[-20_000:])
    return listener.element(NS + "test-report", children=[passed, output])


listener.serve()
