"""The Python kit for organism listeners, for Python 3.9 or later. On NATS, it needs its other modules and nats-py.

    import organism_listener as listener

    NS = "{urn:example:calculator}"

    @listener.accepts(NS + "add")
    def add(request):
        total = sum(int(n.text) for n in request.payload.iter(NS + "n"))
        return listener.element(NS + "sum", str(total))

    listener.serve()

A handler returns an element, a text holding one element, or a list of these; an empty list acknowledges.
After an exception, the pump tries again. To tell the caller of a failure, return a payload that says so.
"""
# The README of the kit has the rest. PROTOCOL describes the frames; the comments of this file cite its sections.

import contextlib
import os
import re
import select
import sys
import threading
import weakref
import xml.etree.ElementTree as ET

__all__ = ["Message", "Request", "ThreadResult", "accepts", "element", "previews", "send_to_thread", "serve", "spawn",
           "stale_preview", "to_xml", "wait"]

_ENVELOPE = "{https://xml-pipeline.org/ns/envelope/v1}"
_CORE = "{https://xml-pipeline.org/ns/core/v1}"
_XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
_HEARTBEAT_SECONDS = 10
_FRAME_BYTES_MAX = 16 << 20
# What XML 1.0 cannot contain: control characters, two that are no characters, and half surrogate pairs.
_NOT_XML = re.compile("[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
# A number with an exponent, such as 5e-05, which `xs:decimal` does not have.
_EXPONENT = re.compile("-?[0-9.]+[eE][-+]?[0-9]+")
# Numbers that are not finite, as Python writes floats and decimals, and as XML Schema does.
_NOT_FINITE = {"inf": "INF", "-inf": "-INF", "Infinity": "INF", "-Infinity": "-INF", "nan": "NaN"}
# A prefix within a value, such as in `p:circle`. The search begins at the beginnings of words alone: a value may
# be one long word, which it would else read again from each of its characters.
_PREFIX = re.compile(r"(?<![\w.-])([\w.-]+):")
# Namespaces of the prefixes in the values of parsed elements, which ElementTree does not keep, by element.
_value_namespaces = weakref.WeakKeyDictionary()
# Maximum calls that are remembered between deliveries, and maximum bytes of their deliveries.
_REMEMBERED_CALLS_MAX = 1024
_REMEMBERED_BYTES_MAX = 16 << 20
# Variables that only a listener on NATS has.
_ON_NATS = ["ORGANISM_BUS_" + name for name in ("NKEY", "CREDENTIALS", "CA", "LEASE", "WORKERS")] + ["ORGANISM_NAME"]
_handlers = {}
_previews = []
_REQUIRED = object()
_IN_QUOTES = {ord('"'): "&quot;", ord("\t"): "&#9;", ord("\n"): "&#10;"}
_warned = set()


def accepts(*names):
    """Registers a handler for calls opened by payloads of these `{namespace}local` names."""

    def register(handler):
        for name in names:
            if name in _handlers:
                raise ValueError(f"two handlers for {name}")
            _handlers[name] = handler
        return handler

    return register


def previews(handler):
    """Registers the handler that returns what a call would do, as a text. It must change nothing. The
    handler of the call then acts only if `request.holds(text)`, and returns `stale_preview()` otherwise."""
    if _previews:
        raise ValueError("two handlers for previews")
    _previews.append(handler)
    return handler


def stale_preview(reason):
    """The answer to a call whose approved preview holds no more. Nothing was changed."""
    return _core_text("stale-preview", reason)


def element(name, text=None, attributes=None, children=()):
    """Creates an element with the name `{namespace}local`: the text, and then the elements in `children`, which may
    also be one. Attributes without a value are left out. A text is a string, a number, or a value such as a date."""
    made = ET.Element(name, _texts_of(attributes or {}, f"element({name!r})"))
    made.text = None if text is None else _text_of(text, f"the text of element({name!r})")
    for child in children if _is_many(children) else [children]:
        if not isinstance(child, ET.Element):
            raise UnfitPart(child, f"a child of element({name!r})")
        made.append(child)
    return made


def spawn(payload, label=None, bound=False, tokens=None, money=None, timeout=None):
    """Opens a thread beneath this one, with `payload` as its first call (section 11). A `bound` thread is cancelled
    when this call ends. `tokens`, `money` and `timeout` (such as `PT10M`) are the most that it may use."""
    limits = {"tokens": tokens, "money": money, "timeout": timeout}
    attributes = {"suggested_sub_id": label, **limits, "bound": bool(bound) or None}
    inner = f"<c:initial-payload>{_writable(payload)}</c:initial-payload>"
    return _core("spawn-thread", attributes, inner)


def send_to_thread(thread, payload):
    """Opens a call in a thread beneath this one."""
    return _core("send-to-thread", {"thread_id": thread}, _writable(payload))


def wait(until="all"):
    """Delays the next delivery of the call until `all`, or `any`, of its threads and timers are done."""
    return _core("wait", {"for": until})


def _core(local, attributes, inner=""):
    """Creates a core payload with a prefix. A default namespace would change the payloads inside it."""
    words = "".join(f" {key}={quoted(text)}" for key, text in _texts_of(attributes, local).items())
    start = f'c:{local} xmlns:c="{_CORE[1:-1]}"{words}'
    return f"<{start}>{inner}</c:{local}>" if inner else f"<{start}/>"


def _texts_of(attributes, owner):
    """The attributes of `owner` as texts. Attributes without a value are left out."""
    return {name: _text_of(value, f"the attribute `{name}` of {owner}")
            for name, value in attributes.items() if value is not None}


def _text_of(value, place):
    """A value as XML Schema writes it: `true` or `false`, a number without an exponent, and `INF` or
    `NaN`. Raises UnfitPart for a value with no text of its own, such as a generator."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    has_text = isinstance(value, (int, float)) or type(value).__str__ is not object.__str__
    if not has_text or isinstance(value, (bytes, bytearray)):
        raise UnfitPart(value, place)
    text = str(value)
    if not hasattr(value, "__float__"):
        return text  # no number, but for example a path
    if _EXPONENT.fullmatch(text):
        from decimal import Decimal  # only here, because it would delay each start

        return format(Decimal(text), "f")
    return _NOT_FINITE.get(text, text)


def _core_text(local, text):
    """An element of the core with this text. Characters that XML cannot contain are replaced."""
    return element(_CORE + local, None if text is None else _NOT_XML.sub("\uFFFD", str(text)))


class Message:
    """One message of a delivery (section 3)."""

    def __init__(self, source, is_remembered=False):
        self.id = source.get("id")
        self.kind = source.get("kind")
        self.seq = int(source.get("seq"))
        self.new = source.get("new") == "true" and not is_remembered
        meta, self.payload = source
        self.name = self.payload.tag
        words = {child.tag: child.text for child in meta}
        self.sender = words.get(_ENVELOPE + "from")
        self.time = words.get(_ENVELOPE + "time")

    def text(self, path, default=_REQUIRED):
        """The text of a child element of the payload, in the payload's own namespace. Without such a
        child, returns `default`, or raises a LookupError if none is given."""
        namespace, end, local = self.payload.tag.rpartition("}")
        found = self.payload.find(namespace + end + path)
        if found is None:
            found = self.payload.find(path)
        if found is not None:
            return found.text or ""
        if default is not _REQUIRED:
            return default
        known = ", ".join(child.tag.rpartition("}")[2] for child in self.payload) or "no children"
        raise LookupError(f"<{local}> has no child `{path}`, it has {known}; for a child that may be missing, "
                          f"write text({path!r}, default)")


class Request(Message):
    """A call to answer: the message that opened it, and in `results` the messages since."""

    def __init__(self, delivery, messages, channel):
        known = len(messages) - len(delivery)
        super().__init__(messages[0], known > 0)
        self.results = [Message(message, index < known) for index, message in enumerate(messages[1:], start=1)]
        self.call = delivery.get("call")
        self.attempt = delivery.get("attempt")
        self.thread = delivery.get("thread")
        self.listener = delivery.get("listener")
        self.timeout = delivery.get("timeout")
        # SHA-256 of the preview that a person approved with the call, or None.
        self.approved_preview = delivery.get("approved_preview")
        # Trace context of this attempt, or None. It is the parent of the handler's own spans.
        self.traceparent = delivery.get("traceparent")
        self._channel = channel

    def holds(self, text):
        """Whether the call may be carried out, if this is its preview now (section 3). After a failed attempt, the
        work of that attempt may be what has changed: look first whether this message is done already."""
        import hashlib

        shown = _shown(text).encode("utf-8")
        return self.approved_preview in (None, hashlib.sha256(shown).hexdigest())

    @property
    def thread_results(self):
        """The results of threads so far, oldest first."""
        return [ThreadResult(m) for m in self.results if m.kind == "system" and m.name == _CORE + "thread-result"]

    def heartbeat(self):
        """Sends a heartbeat, which extends the deadline of the attempt (section 5), unless it is answered."""
        self._channel.heartbeat()

    @contextlib.contextmanager
    def keep_alive(self):
        """Sends heartbeats while a `with` block runs. The first is sent at once, in case of a short time-out."""
        stop = threading.Event()

        def run():
            self.heartbeat()
            while not stop.wait(_HEARTBEAT_SECONDS):
                self.heartbeat()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    @property
    def cancelled(self):
        """Whether the call was cancelled. The handler must still answer, possibly with nothing (section 6)."""
        return self._channel.cancels(self.call)


class ThreadResult:
    """The result of a call in another thread: its `status` is `completed`, `failed` or `cancelled`."""

    def __init__(self, message):
        self.thread = message.payload.get("thread_id")
        # The last part of the thread's id.
        self.label = self.thread.rpartition(".")[2]
        self.status = message.payload.get("status")
        self.payloads = list(message.payload)
        self.new = message.new


class CallMemory:
    """The messages of calls, kept between deliveries (section 3). Beyond a bound, the oldest call is dropped."""

    def __init__(self):
        # The bytes of deliveries, which are parsed again: parsed elements take about 40 times as much room.
        self._calls = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, delivery):
        """Returns the messages and the frames on which a delivery builds, or None if the memory lacks them."""
        with self._lock:
            frames = self._take(delivery.get("call"))
        after = delivery.get("after")
        if after is None:
            return [], []
        messages = [message for frame in frames for message in parse_delivery(frame)]
        return (messages, frames) if len(messages) == int(after) else None

    def put(self, call, frames):
        """Remembers the frames of a call. Returns False if they are too large."""
        size = sum(map(len, frames))
        with self._lock:
            self._take(call)
            if size > _REMEMBERED_BYTES_MAX:
                return False
            self._calls[call] = frames
            self._bytes += size
            while len(self._calls) > _REMEMBERED_CALLS_MAX or self._bytes > _REMEMBERED_BYTES_MAX:
                self._take(next(iter(self._calls)))
            return True

    def _take(self, call):
        frames = self._calls.pop(call, [])
        self._bytes -= sum(map(len, frames))
        return frames


class _Connection:
    """NUL-delimited frames on two file descriptors (section 2)."""

    def __init__(self, source, sink):
        self._source, self._sink = source, sink
        self._partial, self._frames = bytearray(), []
        self.has_ended = False
        self._watch_lock = threading.Lock()
        self._is_handling = False
        self._pump_has_ended = False

    def watch(self):
        """Ends this program when the pump ends while a handler works (section 8)."""
        # The pump has ended if both pipes have lost their other end. The end of standard input alone is no
        # sign, because a delivery may also be read from a file.
        for pipe in (self._source, self._sink):
            poller = select.poll()
            poller.register(pipe, 0)  # a hang-up and an error are always reported
            if not poller.poll()[0][1] & (select.POLLHUP | select.POLLERR):
                return  # it cannot be watched
        with self._watch_lock:
            self._pump_has_ended = True
            if self._is_handling:
                log("the pump has ended; this call is given up")
                os._exit(1)

    def set_handling(self, is_handling):
        """Marks whether a handler works. Returns False if none does, or if the pump has ended."""
        with self._watch_lock:
            self._is_handling = is_handling and not self._pump_has_ended
            return self._is_handling

    def read(self):
        """Returns the next frame, or None when the pump has closed the pipe."""
        while not self._frames and self._fill():
            pass
        if not self._frames and self._partial.strip():
            sys.exit("the input ended within a frame: try a listener with `organism listener test`")
        return self._frames.pop(0) if self._frames else None

    def write(self, text):
        data = memoryview(text.encode("utf-8") + b"\0")
        while data:
            data = data[os.write(self._sink, data):]

    def has_cancel(self, call):
        """Whether a cancel of this call has come. Reads what is in the pipe, and never waits."""
        while select.select([self._source], [], [], 0)[0] and self._fill():
            pass
        return any(f.startswith(b"<cancel") and call.encode() in f for f in self._frames)

    def _fill(self):
        data = os.read(self._source, 1 << 16)
        self._partial += data
        if b"\0" in data:
            *whole, self._partial = self._partial.split(b"\0")
            self._frames += map(bytes, whole)
        self.has_ended = not data
        return bool(data)


class _DeliveryChannel:
    """The channel from the handler of one delivery to the pump, which the answer closes."""

    # Threads of a handler may go on after the answer. They must neither take the frames of the next delivery, nor
    # extend its deadline: only the main thread uses the connection then.

    def __init__(self, connection):
        # Held between the look at the pipe and the read. Of two threads of a handler that look at once, one
        # would otherwise read what the other saw, and the other would wait for the next frame.
        self._lock = threading.Lock()
        self._connection = connection
        self._is_answered = self._is_cancelled = False

    def heartbeat(self):
        with self._lock:
            if not self._is_answered:
                self._connection.write("<heartbeat/>")

    def cancels(self, call, at_end=True):
        """Whether the call was cancelled before its answer. At the end of the input, returns `at_end`."""
        with self._lock:
            if not self._is_answered:
                self._is_cancelled = self._connection.has_cancel(call)
        return self._is_cancelled or (at_end and self._connection.has_ended)

    def answer(self, text):
        with self._lock:
            self._is_answered = True
            self._connection.write(text)


def log(text):
    """Writes a line to the log. A log that nothing reads any more is no reason to lose an answer."""
    # Without the buffer of `sys.stderr`, which could not be written at the exit of the program, either.
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))


def reason_of(error):
    """The type of an exception, and its text if it can give one."""
    with contextlib.suppress(Exception):
        return f"{type(error).__name__}: {error}"
    return type(error).__name__


def escaped(text):
    """A text between tags. XML would read a carriage return as a line feed."""
    # xml.sax.saxutils would import the clients of HTTP and mail: half the time of a start.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")


def quoted(value):
    """The value of an attribute, in quotes. XML would read tabs and line breaks as spaces."""
    return f'"{escaped(value).translate(_IN_QUOTES)}"'


def to_xml(source, default=""):
    """An element as text, with default namespaces. Elements have prefixes only where a parsed value needs it."""
    namespace, _, local = source.tag.rpartition("}")
    bound = {"": namespace[1:], **_value_namespaces.get(source, {})}
    tag = local if bound[""] == namespace[1:] else _prefixed(namespace, local, bound)
    words = []
    for key, value in source.attrib.items():
        outer, _, key = key.rpartition("}")
        words.append(f"{_prefixed(outer, key, bound) if outer else key}={quoted(value)}")
    declared = [f"xmlns:{prefix}={quoted(uri)}" if prefix else f"xmlns={quoted(uri)}"
                for prefix, uri in bound.items() if prefix or uri != default]
    # Only None is no text. A number such as 0 must fail as any other does.
    inner = "" if source.text is None else escaped(source.text)
    for child in source:
        inner += to_xml(child, bound[""]) + ("" if child.tail is None else escaped(child.tail))
    start = " ".join([tag, *declared, *words])
    return f"<{start}>{inner}</{tag}>" if inner else f"<{start}/>"


def _prefixed(namespace, local, bound):
    """A name with a prefix of its own, which is added to the `bound` ones."""
    if namespace == "{http://www.w3.org/XML/1998/namespace":
        return f"xml:{local}"
    prefix = next(f"a{n}" for n in range(len(bound) - 1, 2 * len(bound)) if f"a{n}" not in bound)
    bound[prefix] = namespace[1:]
    return f"{prefix}:{local}"


def _is_many(value):
    """Whether a value is an iterable of others. An element of lxml is also an iterable, of its children."""
    # One object that yields nothing would be lost without an error.
    is_one = hasattr(value, "tag") or isinstance(value, (str, bytes, bytearray, dict))
    return hasattr(value, "__iter__") and not is_one


def _answer(returned):
    """What a handler returned, as the text of one frame."""
    if returned is None or isinstance(returned, str):
        return returned or ""
    if isinstance(returned, ET.Element):
        return to_xml(returned)
    # Braces in place of brackets make a set, and an empty one would acknowledge, unlike an empty list.
    if _is_many(returned) and (returned or not isinstance(returned, (set, frozenset))):
        return "".join(map(_answer, returned))
    kind = type(returned)
    advice = "; return its text, such as etree.tostring(it, encoding='unicode')" if hasattr(returned, "tag") else ""
    raise TypeError(f"this is of type {kind.__module__}.{kind.__qualname__}{advice}")


class UnreadableDelivery(Exception):
    """A delivery cannot be parsed. A retry would fail in the same way, so the call ends (section 7)."""


class UnwritableAnswer(Exception):
    """The answer of a handler cannot be sent. A retry would repeat its effects, so the call ends (section 7)."""

    def __init__(self, reason):
        super().__init__(f"the answer cannot be sent: {reason}")


class UnfitPart(UnwritableAnswer, TypeError):
    """A handler passed a value of another type as a text, an attribute or a child of an element."""

    def __init__(self, value, place):
        super().__init__(f"{place} is of type {type(value).__name__}: pass elements as children=[...], attributes "
                         "as attributes={...}, and each text as a string or a number")


def _writable(returned):
    """Returns what a handler returned as the text of an answer, if XML can contain it. NUL would end the frame."""
    try:
        payloads = _answer(returned)
    except Exception as error:
        advice = "return elements, texts or lists of these; make texts and attributes of elements strings"
        raise UnwritableAnswer(f"{advice} ({reason_of(error)})") from error
    if found := _NOT_XML.search(payloads):
        raise UnwritableAnswer(f"XML cannot contain the character U+{ord(found[0]):04X}")
    return payloads


def _named(delivery, payloads, remembers):
    """An answer that names its call (section 4)."""
    memory = ' remembers="true"' if remembers else ""
    return f"<e:answer {_names(delivery)}{memory}>{payloads}</e:answer>"


def missing_memory(delivery):
    """Requests all messages of a call, because the memory lacks those on which its delivery builds."""
    return f"<e:missing-memory {_names(delivery)}/>"


def _names(delivery):
    call, attempt = (quoted(delivery.get(name)) for name in ("call", "attempt"))
    return f'xmlns:e="{_ENVELOPE[1:-1]}" call={call} attempt={attempt}'


def _take_over():
    """Takes over standard input and standard output for frames. What a handler prints goes to the log."""
    source, sink = os.dup(0), os.dup(1)
    # A program that a handler starts finds its standard input empty. It would otherwise take the next frames, or wait
    # for an end of input that does not come.
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    return _Connection(source, sink)


def serve():
    """Answers deliveries until the pump closes standard input, and then ends with code 0. If the
    environment names a server in ORGANISM_BUS_URL, answers on NATS until a signal ends the program."""
    if not _handlers:
        sys.exit("there are no handlers: register them with `accepts` before `serve()`")
    # A process that is killed writes nothing more.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    if os.environ.get("ORGANISM_BUS_URL"):
        import organism_bus

        return organism_bus.Bus(_answered, CallMemory(), missing_memory, bool(_previews)).serve()
    # A pump sets none of these for a child process. A supervisor would take the end of empty input for a success.
    for name in filter(os.environ.get, _ON_NATS):
        sys.exit(f"{name} is set, and needs ORGANISM_BUS_URL beside it; leave it out for a child process")
    connection = _take_over()
    threading.Thread(target=connection.watch, daemon=True).start()
    memory = CallMemory()
    while (frame := connection.read()) is not None:
        if frame.startswith(b"<cancel"):
            continue  # the cancel came too late: the call has been answered
        if not connection.set_handling(True):
            return
        channel = _DeliveryChannel(connection)
        try:
            answer = _frame(frame, memory, channel)
        except Exception:
            sys.excepthook(*sys.exc_info())
            # At its exit, Python writes what is buffered, and waits for the threads of the handler, which may not end.
            late_end = threading.Timer(1, os._exit, [1])
            late_end.daemon = True
            late_end.start()
            sys.exit(1)
        connection.set_handling(False)
        channel.answer(answer)


def _frame(frame, memory, channel):
    """Returns the frame that answers a delivery."""
    try:
        delivery = parse_delivery(frame)
        payloads, is_remembered = _answered(delivery, frame, memory, channel)
        if payloads is None:
            return missing_memory(delivery)
        answer = _named(delivery, payloads, is_remembered)
        if (size := len(answer.encode("utf-8"))) > _FRAME_BYTES_MAX:
            raise UnwritableAnswer(f"it has {size} bytes, and a frame has at most {_FRAME_BYTES_MAX}")
        return answer
    except (UnreadableDelivery, UnwritableAnswer) as reason:
        log(f"organism_listener: {reason}")
        # The reason stands in place of payloads, so the pump does not try again. The pump has written the first tag.
        return _named(ET.fromstring(frame.partition(b">")[0] + b"/>"), escaped(str(reason)), False)
    except Exception as error:
        # A handler that ends early because of a cancel, and raises, has not crashed.
        if not channel.cancels(delivery.get("call"), at_end=False):
            raise
        log(f"organism_listener: after a cancel: {reason_of(error)}")
        return _named(delivery, "", False)


def parse_delivery(frame):
    """The element of a delivery."""
    has_prefixes = frame.count(b"xmlns:") > 1  # the envelope has one
    try:
        return ET.fromstring(frame, ET.XMLParser(target=_Builder()) if has_prefixes else None)
    # The parser knows only the names of the fourth edition of XML 1.0, and the pump admits those of the fifth.
    except ET.ParseError as error:
        raise UnreadableDelivery(f"the delivery cannot be read: {error}") from None


class _Builder(ET.TreeBuilder):
    """Builds elements, and notes the namespaces of the prefixes in their values."""

    def __init__(self):
        super().__init__()
        self._declared = [("", "")]

    def start_ns(self, prefix, uri):
        self._declared.append((prefix, uri))

    def end_ns(self, prefix):
        self._declared.pop()

    def end(self, tag):
        built = super().end(tag)
        values = [built.text or "", *built.attrib.values()]
        prefixes = {prefix for value in values for prefix in _PREFIX.findall(value)}
        if ":" not in built.get(_XSI_TYPE, ":"):
            prefixes.add("")  # a type without a prefix is in the default namespace
        if bound := {prefix: uri for prefix, uri in self._declared if prefix in prefixes and uri != _ENVELOPE[1:-1]}:
            _value_namespaces[built] = bound
        return built


def _warn_of_nothing(handler):
    """Warns once of a handler that returned None, as one does that lacks its `return`."""
    if handler not in _warned:
        _warned.add(handler)
        name = getattr(handler, "__name__", "a handler")
        log(f"organism_listener: {name} returned nothing, which acknowledges; if this is meant, return []")


def _answered(delivery, frame, memory, channel):
    """Returns the text of the answer to the delivery in this frame, and whether its call is now
    remembered. The text is None if the memory lacks messages on which the delivery builds."""
    remembered = memory.take(delivery)
    if remembered is None:
        return None, False
    messages, frames = remembered
    request = Request(delivery, messages + list(delivery), channel)
    if delivery.tag == _ENVELOPE + "preview":
        return _previewed(request), False
    handler = _handlers.get(request.name)
    if handler is None:
        known = ", ".join(sorted(_handlers))
        raise LookupError(f"no handler for {request.name}, only for {known}; names have the form {{namespace}}local")
    returned = handler(request)
    if hasattr(returned, "__next__"):
        returned = list(returned)  # a handler with `yield` runs here, and may raise
    if returned is None and not request.cancelled:
        _warn_of_nothing(handler)
    payloads = _writable(returned)
    return payloads, memory.put(delivery.get("call"), frames + [frame])


def _previewed(request):
    """The answer to the request for a preview. If there is none, it is empty, and the listener goes on."""
    if not _previews:
        log("no preview: this listener has no handler for previews, so take `previews = true` out of its config")
        return ""
    try:
        text = _previews[0](request)
        if text is not None:
            return _shown(text)
        log("no preview: the handler for previews returned nothing")
    except Exception:
        sys.excepthook(*sys.exc_info())
    return ""


def _shown(text):
    """The payload with a preview."""
    return to_xml(_core_text("preview", text))
