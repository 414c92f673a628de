"""`rejects FILE`: files each invoice that was turned down, once, and answers with the reason."""

import sys

from book import Book
from words import NS, fields, listener, rejected


def main(path):
    files = Book(path)

    @listener.accepts(NS + "rejection")
    def file(request):
        return rejected(files.enter(request.id, **fields(request.payload)))

    listener.serve()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: rejects.py FILE")
    main(sys.argv[1])
