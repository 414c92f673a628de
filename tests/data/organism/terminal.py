#!/usr/bin/env -S python3 -S
"""Runs a command on a terminal of its own and types into it.

terminal.py STEPS COMMAND...: STEPS is JSON, a list of [prompt, keys]: once the prompt has appeared
behind what the step before waited for, the keys are typed. Prints everything that was shown, then
a line with the exit code; what a signal ended has the code a shell gives it.
"""
import json, os, pty, select, signal, sys, time

steps, command = json.loads(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    # Whatever started us may ignore it; what a shell starts on a terminal does not.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(command[0], command)

shown, seen, until = b"", 0, time.monotonic() + 60
while True:
    if steps:
        prompt, keys = steps[0]
        at = shown.find(prompt.encode(), seen)
        if at >= 0:
            seen = at + len(prompt.encode())
            os.write(terminal, keys.encode())
            steps.pop(0)
            continue
    ready, _, _ = select.select([terminal], [], [], max(0, until - time.monotonic()))
    try:
        more = os.read(terminal, 65536) if ready else b""
    except OSError:
        more = b""
    if not more:
        break
    shown += more
if time.monotonic() >= until:
    os.kill(child, signal.SIGKILL)
_, status = os.waitpid(child, 0)
ended = os.waitstatus_to_exitcode(status)
sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
print("\nnever shown: %r" % steps if steps else "")
print(ended if ended >= 0 else 128 - ended)
