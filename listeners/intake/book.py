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
        # A buffer would keep the line of a failed write, and write it again with the next one.
        self._file = open(path, "a+b", buffering=0)
        self._lock(path)
        self.entries = self._load()
        self._by_message = {entry["message"]: entry for entry in self.entries}

    def entered(self, message):
        """The entry that a message has made before, or None."""
        return self._by_message.get(message)

    def enter(self, message, **fields):
        """The entry of a message, made now unless it was there.

        An OSError, such as of a full disk, leaves the book without the entry.
        """
        entry = self.entered(message)
        if entry is None:
            entry = {"entry": len(self.entries) + 1, "message": message, **fields}
            line = json.dumps(entry, ensure_ascii=False) + "\n"
            self._append(line.encode())
            self.entries.append(entry)
            self._by_message[message] = entry
        return entry

    def close(self):
        self._file.close()

    def _append(self, line):
        length = os.fstat(self._file.fileno()).st_size
        try:
            while line:
                line = line[self._file.write(line):]
            os.fsync(self._file.fileno())
        except OSError:
            self._shorten(length)
            raise

    def _shorten(self, length):
        try:
            self._file.truncate(length)
        except OSError as error:
            # The file and `entries` differ now. Another process reads the file anew.
            print(f"cannot take back an unfinished entry: {error}", file=sys.stderr, flush=True)
            os._exit(1)

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
        # An earlier process may have ended before its last line, or its removal, was on the disk.
        os.fsync(self._file.fileno())
        return [json.loads(line) for line in whole.splitlines()]
