"""The variables of the environment that a listener on NATS reads (PROTOCOL in the documentation, section 12). A wrong
value ends the program with a text that names the variable.
"""

import os
import re
import ssl

from organism_listener import reason_of

_LEASE_MAX = 30 * 24 * 3600
_ADDRESS = re.compile(r"((nats|tls|wss?)://)?(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]]+)(:[0-9]{1,5})?(/\S*)?")


def readable(name):
    """The path in a variable, or None. Checks the file before connecting, because nats-py reports no clear error
    for it."""
    path = os.environ.get(name) or None
    try:
        if path:
            with open(path, "rb"):
                pass
    except OSError as error:
        raise SystemExit(f"{name} is `{path}`: {error.strerror}") from None
    return path


def trusting(path):
    """The settings of TLS that trust the certificates in a file."""
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise SystemExit(
            f"ORGANISM_BUS_CA is `{path}`, which cannot be used: {reason_of(error)}; name a PEM file with the "
            "certificate of the authority that signed the certificates of the servers") from None


def addresses(text):
    """The addresses of the servers. The client would wait for ever for a server whose address is none."""
    addresses = [address.strip() for address in text.split(",")]
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise SystemExit(
                f"ORGANISM_BUS_URL has `{address}`, not the address of a NATS server: write it like "
                "nats://127.0.0.1:4222 or tls://host:4222")
    return addresses


def shown_credentials():
    """The credentials of this listener, for error messages."""
    keys = ("ORGANISM_BUS_CREDENTIALS", "ORGANISM_BUS_NKEY")
    shown = [f"{key}={os.environ[key]}" for key in keys if os.environ.get(key)]
    return ", ".join(shown) or "there are no credentials"


def lease_seconds(text):
    """The value of ORGANISM_BUS_LEASE."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= _LEASE_MAX:
        raise SystemExit(f"ORGANISM_BUS_LEASE is `{text}`, not a number of seconds from 1")
    return seconds


def worker_count(text):
    """The value of ORGANISM_BUS_WORKERS."""
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise SystemExit(
            f"ORGANISM_BUS_WORKERS is `{text}`, not a number of handlers from 1 to 9999")
    return int(text)


def name_in(variable):
    """The name of an organism or a listener in a variable."""
    name = needed(variable)
    if not re.fullmatch("[a-z][a-z0-9-]{0,63}", name):
        raise SystemExit(
            f"{variable} is `{name}`, not a name: a lowercase letter, then up to 63 lowercase "
            "letters, digits or hyphens")
    return name


def refuse_contradictory_credentials():
    """Refuses two kinds of credentials, and credentials in ORGANISM_BUS_URL."""
    credentials, nkey = "ORGANISM_BUS_CREDENTIALS", "ORGANISM_BUS_NKEY"
    if os.environ.get(credentials) and os.environ.get(nkey):
        raise SystemExit(f"set {credentials} or {nkey}, not both")
    if "@" in needed("ORGANISM_BUS_URL"):
        raise SystemExit(f"ORGANISM_BUS_URL holds credentials; set {credentials} or {nkey}")


def needed(name):
    """The value of a variable that a listener on NATS cannot do without."""
    value = os.environ.get(name)
    if not value:
        raise SystemExit(f"ORGANISM_BUS_URL is set, and needs {name} beside it")
    return value
