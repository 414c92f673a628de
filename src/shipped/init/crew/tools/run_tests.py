"""A tool of the crew: answers <run-tests> with a <test-report>. It runs this one command only."""

import re
import subprocess
import sys

import organism_listener as listener  # the kit beside this file; its first lines explain it

NS = "{https://xml-pipeline.org/ns/payloads/v1}"
COMMAND = [sys.executable, "-B", "-m", "unittest"]  # put your project's own in its place
SECONDS_MAX = 300
NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@listener.accepts(NS + "run-tests")
def run_tests(request):
    only = request.text("only", "")
    command = COMMAND + (["-k", only] if only else [])
    with request.keep_alive():  # long tests are no time-out
        passed, shown = run(command)
    passed = listener.element(NS + "passed", "true" if passed else "false")
    output = listener.element(NS + "output", NOT_IN_XML.sub("\ufffd", shown)[-20_000:])
    return listener.element(NS + "test-report", children=[passed, output])


def run(command):
    tests = subprocess.Popen(
        command, cwd=sys.argv[1], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    try:
        shown, _ = tests.communicate(timeout=SECONDS_MAX)
        return tests.returncode == 0, shown
    except subprocess.TimeoutExpired:
        tests.kill()
        tests.wait()
        tests.stdout.close()  # not read to its end: a child of the tests may hold it open
        return False, f"The tests did not end within {SECONDS_MAX} seconds and were stopped."


listener.serve()
