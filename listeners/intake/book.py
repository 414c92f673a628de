"""A file of entries, one JSON object a line, that takes each message once.

A delivery may come again after a crash, with the same message id: the entry of the first time
is then given back and nothing is written. An entry is on the disk before it is answered for.
"""

import fcntl
import json
import os
import sys


class Book:
    """Waits until no other process has the same book open."""

    def __init__(self, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        self._file = open(path, "a+b")
        self._lock(path)
        self.entries = self._load()
        self._by_message = {entry["message"]: entry for entry in self.entries}

    def entered(self, message):
        """The entry that a message has made before, or None."""
        return self._by_message.get(message)

    def enter(self, message, **fields):
        """The entry of a message, made now unless it was there."""
        entry = self.entered(message)
        if entry is None:
            entry = {"entry": len(self.entries) + 1, "message": message, **fields}
            line = json.dumps(entry, ensure_ascii=False) + "\n"
            self._file.write(line.encode())
            self._file.flush()
            os.fsync(self._file.fileno())
            self.entries.append(entry)
            self._by_message[message] = entry
        return entry

    def close(self):
        self._file.close()

    def _lock(self, path):
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = f"waiting for another process that has {path} open; one at a time can"
            print(f"{reason}, so declare `instances = 1`", file=sys.stderr, flush=True)
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def _load(self):
        self._file.seek(0)
        data = self._file.read()
        whole, newline, torn = data.rpartition(b"\n")
        if torn:
            # A crash in mid-write: nobody has been told of this entry.
            self._file.truncate(len(whole) + len(newline))
        return [json.loads(line) for line in whole.splitlines()]
