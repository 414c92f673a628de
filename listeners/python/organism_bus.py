"""The Python kit on NATS (PROTOCOL in the documentation, section 12). `organism_listener.serve` uses this module
when the environment names a server in ORGANISM_BUS_URL. Only this module of the kit needs nats-py. It needs
`organism_environment.py` beside it.

One thread talks to the server, so that keep-alives continue while handlers work. Handlers run in
threads of their own; ORGANISM_BUS_WORKERS sets their number, which is 1 by default.
"""

import asyncio
import collections
import contextlib
import json
import logging
import math
import os
import queue
import re
import secrets
import signal
import ssl
import sys
import threading
import time
import traceback
from datetime import datetime, timezone

from organism_environment import (
    addresses, lease_seconds, name_in, needed, readable, refuse_contradictory_credentials, shown_credentials,
    trusting, worker_count)
from organism_listener import (
    UnreadableDelivery, UnwritableAnswer, escaped, log, parse_delivery, quoted, reason_of)

try:
    import nats
    import nats.errors
except ImportError as error:
    raise SystemExit(
        f"ORGANISM_BUS_URL is set, and nats-py is not there ({error}): "
        "pip install 'nats-py[nkeys]'") from None

_ENVELOPE = "https://xml-pipeline.org/ns/envelope/v1"
_WORDS_MAX = 200
_LAST_INBOXES = 64
_LOGGED_MAX = 100
_VERSION = "0.1.0"
# Seconds for which a stopping listener waits for an unreachable server, and for which an answer waits after
# an outage for the pump.
_GRACE = 5
# Seconds within which a server states that nobody subscribes to a subject.
_PROBE = 0.5
_PERMISSION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.I)
_GONE = (499, "its caller was gone before it was begun")


class _Log:
    """Standard output of the handlers. A log that nothing reads any more is no reason to fail a delivery."""

    def __init__(self, stream):
        self._stream = stream

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text):
        with self._kept():
            self._stream.write(text)
        return len(text)

    def flush(self):
        with self._kept():
            self._stream.flush()

    @contextlib.contextmanager
    def _kept(self):
        try:
            yield
        except BrokenPipeError:
            # What the stream keeps in its buffer has to go somewhere, at the latest at the end of the program.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


class Task:
    """A delivery that this replica holds, and the channel from its handler to the pump."""

    def __init__(self, bus, message, outages):
        self._bus = bus
        # Number of outages of the connection before this delivery.
        self.outages = outages
        self.reply = message.reply
        self.headers = message.headers or {}
        self.body = message.data
        self.cancelled = False
        self.is_settled = False

    def heartbeat(self):
        if not self.is_settled:
            self._bus.say(self.reply, {"Organism-Heartbeat": "1"}, b"")

    def cancels(self, _call):
        return self.cancelled

    def is_named(self, headers):
        names = ("Organism-Call", "Organism-Attempt")
        return all(headers.get(name) == self.headers.get(name) for name in names)

    def frame(self, listener):
        """The delivery as the frame that a child process would get."""
        if "Organism-Messages" in self.headers:
            return self.body
        header = self._header
        delivery = {
            "xmlns:e": _ENVELOPE, "call": header("Call"), "attempt": header("Attempt"),
            "thread": header("Thread"), "listener": listener, "timeout": f"PT{header('Timeout')}S",
        }
        if "Organism-Approved-Preview" in self.headers:
            delivery["approved_preview"] = header("Approved-Preview")
        if "traceparent" in self.headers:
            delivery["traceparent"] = self.headers["traceparent"]
        message = {"id": header("Message"), "kind": "call", "seq": header("Seq"), "new": "true"}
        begin = (
            f"<e:delivery{_attributes(delivery)}><e:message{_attributes(message)}><e:meta>"
            f"<e:from>{escaped(header('From'))}</e:from><e:time>{escaped(header('Time'))}</e:time>"
            "</e:meta>"
        )
        return b"".join((begin.encode(), self.body, b"</e:message></e:delivery>"))

    def _header(self, name):
        value = self.headers.get("Organism-" + name)
        if value is None:
            raise ValueError(f"a delivery without its header Organism-{name}")
        return value


def _attributes(values):
    return "".join(f" {name}={quoted(value)}" for name, value in values.items())


class Bus:
    """A listener on NATS. `answer` takes a delivery's element and frame, a memory and a task. It returns
    the text of the answer and whether the call is remembered. The text is None if the memory lacks
    messages on which the delivery builds. Requests for previews come only if it `gives_previews`."""

    def __init__(self, answer, memory, missing_memory, gives_previews):
        self._answer, self._memory, self._missing_memory = answer, memory, missing_memory
        self._organism = name_in("ORGANISM_NAME")
        self._listener = name_in("ORGANISM_LISTENER")
        refuse_contradictory_credentials()
        self._servers = addresses(needed("ORGANISM_BUS_URL"))
        self._lease = lease_seconds(os.environ.get("ORGANISM_BUS_LEASE") or "5")
        self._workers = worker_count(os.environ.get("ORGANISM_BUS_WORKERS") or "1")
        self._waiting = queue.SimpleQueue()
        self._held = []
        self._settled = 0.0
        self._is_connected = False
        self._outages = 0
        # Until this time, answers to deliveries from before the last outage wait for the pump.
        self._pump_awaited_until = 0.0
        self._denied = None
        # What was logged since the connection was last made.
        self._logged = set()
        self._subscribed = []
        self._inboxes = collections.deque(maxlen=_LAST_INBOXES)
        # Subject for deliveries that build on messages that this replica remembers.
        self._own_subject = f"_INBOX_{self._listener}.{secrets.token_hex(8)}"
        self._previews = (
            f"_INBOX_{self._listener}.preview.{self._organism}" if gives_previews else None)
        self._service = _Service(self._organism, self._listener, self._subject("to"), self._lease)

    def _subject(self, kind, token=None):
        subject = f"organism.{self._organism}.{kind}.{self._listener}"
        return f"{subject}.{token}" if token else subject

    def serve(self):
        if sys.stdout is not None:
            sys.stdout = _Log(sys.stdout)
        logging.getLogger("asyncio").addFilter(_is_no_closed_stream)
        asyncio.run(self._serve())

    async def _serve(self):
        try:
            await self._run()
        finally:
            await _end_tasks()

    async def _run(self):
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(name, self._stopping.set)
        if not await self._connect():
            log("organism_bus: asked to end before NATS was reached")
            return
        self._is_connected = True
        deliveries = await self._subscribe(
            self._subject("to"), queue=self._listener, cb=self._take)
        taken = [await self._subscribe(self._own_subject, cb=self._take), deliveries]
        if self._previews:
            taken.append(await self._subscribe(
                self._previews, queue=self._listener, cb=self._take))
        await self._subscribe(self._subject("cancel"), cb=self._cancel)
        for verb, subject in self._service.subjects():
            await self._subscribe(subject, cb=self._explain(verb))
        await self._here()
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._workers)]
        for thread in threads:
            thread.start()
        living = asyncio.create_task(self._live())
        await self._stopping.wait()
        await self._leave(taken, living)

    async def _subscribe(self, subject, **options):
        self._subscribed.append(subject)
        return await self._client.subscribe(subject, **options)

    async def _connect(self):
        """Connects, and retries until it succeeds. Returns False if the program is stopped first."""

        async def connect():
            try:
                self._client = await nats.connect(**self._options())
            except SystemExit as refused:
                # A SystemExit that leaves a task ends the loop and prints a traceback.
                return refused
            except Exception as error:  # nkeys may raise any exception for an invalid file
                return SystemExit(
                    f"connecting to NATS: {type(error).__name__}: {error}: with {shown_credentials()}")
            return None

        connecting = asyncio.create_task(connect())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not connecting.done():
            connecting.cancel()
            return False
        refused = connecting.result()
        if refused:
            raise refused
        return True

    async def _leave(self, subscriptions, living):
        """Takes no further delivery, and finishes the deliveries that it has."""
        until = self._loop.time() + _GRACE
        for subscription in subscriptions:
            if not self._client.is_closed:
                await self._try(until, subscription.drain())
        while self._held:
            await asyncio.sleep(0.01)
        living.cancel()
        if self._denied:
            # What was reported of it must reach the server.
            await self._try(until, self._client.flush())
            raise SystemExit(self._denied)
        if self._client.is_closed:
            raise SystemExit("the connection to NATS is closed, and stays so")
        if not await self._try(max(until, self._settled + _GRACE), self._part()):
            # The leases of these deliveries end, and the pump delivers again.
            log("organism_bus: NATS is away: answers it has not got are lost")

    async def _part(self):
        """Sends the last answers. Waits for an unreachable server."""
        while not self._client.is_connected:
            await asyncio.sleep(0.01)
        await self._client.flush()
        await self._client.close()

    async def _try(self, until, parting):
        try:
            await asyncio.wait_for(parting, max(until - self._loop.time(), 0))
            return True
        except (nats.errors.Error, asyncio.TimeoutError, OSError) as error:
            log(f"organism_bus: {reason_of(error)}")
            return False

    def _options(self):
        authority = readable("ORGANISM_BUS_CA")
        return {
            "servers": self._servers,
            "name": f"listener {self._listener} of {self._organism}",
            "user_credentials": readable("ORGANISM_BUS_CREDENTIALS"),
            "nkeys_seed": readable("ORGANISM_BUS_NKEY"),
            "tls": trusting(authority) if authority else None,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.2,
            "inbox_prefix": f"_INBOX_{self._listener}",
            "disconnected_cb": self._note_outage,
            "reconnected_cb": self._return,
            "closed_cb": self._closed,
            "error_cb": self._wrong,
        }

    async def _wrong(self, error):
        """Ends the program on an error that waiting cannot repair. Logs every other error."""
        text = f"organism_bus: {self._as_written(reason_of(error))}"
        is_logged = True
        if not self._is_connected:
            if "certificate required" in str(error).lower():
                raise SystemExit(
                    f"{text}: the server demands a certificate of its clients, and a listener shows none: "
                    "remove `verify` from the `tls` section of the server")
            if isinstance(error, ssl.SSLError):
                authority = os.environ.get("ORGANISM_BUS_CA") or "the system's authorities"
                raise SystemExit(f"{text}: ORGANISM_BUS_CA trusts {authority}")
            if "authorization violation" in str(error).lower():
                raise SystemExit(
                    f"{text}: the servers do not take what they are shown: {shown_credentials()}")
        elif "authorization violation" in str(error).lower():
            text = (
                f"{text}: the servers do not take what they are shown: {shown_credentials()}; after this was replaced, "
                "restart the listener")
        elif self._is_denied(str(error)):
            await self._report_denied(str(error))
            text = (
                f"{text}: the right to it is missing: look whether the organism is called {self._organism} and this is "
                f"the key of its listener {self._listener}; `organism nats-config` writes a server's config with all "
                "that is needed")
            # The program ends with this text, but only after its handlers.
            is_logged = bool(self._held) and not self._denied
            self._denied = self._denied or text
            self._stopping.set()
        else:
            await self._report_denied(str(error))
            # The first denial, of the deliveries, is the clearest. Those that follow have the same cause.
            is_logged = not (self._denied and _PERMISSION.search(str(error)))
        # The client reconnects five times a second, possibly for hours, and two errors may alternate.
        if text not in self._logged and is_logged:
            if len(self._logged) >= _LOGGED_MAX:
                self._logged.clear()
            self._logged.add(text)
            log(text)

    def _is_denied(self, text):
        """Whether a server's error denies a permission that every listener needs."""
        denied = text.lower()
        own = (f'subscription to "{self._subject("to")}"', f'publish to "{self._subject("re")}.')
        return "permissions violation" in denied and any(what.lower() in denied for what in own)

    async def _report_denied(self, text):
        """Reports an operation that a server denied to the pump, which records it. A denied report is
        not reported."""
        denied = _PERMISSION.search(text)
        if denied is None:
            return
        verb = "publish" if denied[1].lower() == "publish" else "subscribe"
        own = self._subject("re") + "."
        if verb == "subscribe" or not denied[2].lower().startswith(own.lower()):
            report = f"{verb} {self._as_used(denied[2])}".encode()
            await self._publish(self._subject("re", "denied"), {}, report)

    def _as_written(self, text):
        """A server's error with the denied subject as this listener wrote it."""
        denied = _PERMISSION.search(text)
        return text.replace(denied[2], self._as_used(denied[2])) if denied else text

    def _as_used(self, subject):
        """The subject as this listener wrote it. nats-py turns a server's error into lowercase letters."""
        used = (*self._subscribed, *self._inboxes)
        return next((own for own in used if own.lower() == subject.lower()), subject)

    async def _closed(self):
        self._stopping.set()

    async def _note_outage(self):
        self._outages += 1
        self._pump_awaited_until = math.inf

    async def _return(self):
        self._pump_awaited_until = self._loop.time() + _GRACE
        await self._here()

    async def _here(self):
        self._logged.clear()
        if self._stopping.is_set():
            return
        await self._publish(self._subject("re", "here"), self._announcement(), b"")

    def _announcement(self):
        return {"Organism-Lease": str(self._lease)}

    async def _live(self):
        """Sends a keep-alive for each held delivery, three times in each lease."""
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                for task in list(self._held):
                    await self._publish(task.reply, self._announcement(), b"")
            except nats.errors.Error as error:
                # Without a keep-alive, the pump delivers to another replica.
                log(f"organism_bus: {error}")

    async def _take(self, message):
        if message.reply:
            task = Task(self, message, self._outages)
            self._held.append(task)
            self._waiting.put(task)

    async def _cancel(self, message):
        for task in self._held:
            if task.is_named(message.headers or {}):
                task.cancelled = True

    def _may_ask(self, reply):
        """Whether to answer a request for service information from this reply subject."""
        return reply and (not reply.startswith("organism.") or reply == self._subject("re", "here"))

    def _explain(self, verb):
        async def explain(message):
            # A stopping replica must not announce itself any more.
            if self._may_ask(message.reply) and not self._stopping.is_set():
                text = json.dumps(self._service.answer(verb)).encode()
                self._inboxes.append(message.reply)
                await self._publish(message.reply, self._announcement(), text)

        return explain

    async def _publish(self, subject, headers, body):
        await self._client.publish(subject, body, headers=headers or None)

    def say(self, subject, headers, body):
        """Publishes a message. Must be called from a thread that may block."""
        publishing = self._publish(subject, headers, body)
        asyncio.run_coroutine_threadsafe(publishing, self._loop).result()

    def _work(self):
        while True:
            task = self._waiting.get()
            begun = time.perf_counter_ns()
            try:
                headers, body = {}, b""
                failed = _GONE if task.cancelled else None
                if not failed:
                    headers, body = self._attend(task)
            except (UnreadableDelivery, UnwritableAnswer) as reason:
                log(f"organism_bus: {reason}")
                failed = (400 if isinstance(reason, UnreadableDelivery) else 422, str(reason))
            except BaseException as error:  # the caller waits for an answer to every delivery
                if task.cancelled:
                    log(f"organism_bus: after a cancel: {reason_of(error)}")
                else:
                    log(traceback.format_exc().rstrip())
                    failed = (500, reason_of(error))
            self._service.count(time.perf_counter_ns() - begun, failed)
            settling = self._settle(task, headers, body, failed)
            asyncio.run_coroutine_threadsafe(settling, self._loop)

    def _attend(self, task):
        frame = task.frame(self._listener)
        delivery = parse_delivery(frame)
        text, is_remembered = self._answer(delivery, frame, self._memory, task)
        if text is None:
            return {}, self._missing_memory(delivery).encode()
        return {"Organism-Remembers": self._own_subject} if is_remembered else {}, text.encode()

    async def _settle(self, task, headers, body, failed):
        # No keep-alive or heartbeat may follow the answer of a delivery.
        task.is_settled = True
        self._settled = self._loop.time()
        await self._until_subscribed(task)
        self._held.remove(task)
        try:
            await self._send_result(task, headers, body, failed)
        except nats.errors.Error as error:
            # The lease of the delivery ends, and the pump delivers again.
            log(f"organism_bus: an answer is lost: {error}")

    async def _until_subscribed(self, task):
        """Waits after an outage until the pump subscribes to the answer of a delivery again. The servers drop an
        answer to which nobody subscribes. The time is limited, because the pump may have ended."""
        while not self._client.is_closed:
            if not self._client.is_connected:
                if self._stopping.is_set() and self._loop.time() > self._settled + _GRACE:
                    return
                await asyncio.sleep(0.01)
                continue
            if task.outages == self._outages or self._loop.time() > self._pump_awaited_until:
                return
            try:
                # The pump does not respond to a keep-alive, but a server does for a subject that nobody subscribes to.
                await self._client.request(task.reply, b"", _PROBE, headers=self._announcement())
                # A stream that captures the subject has acknowledged the keep-alive.
                return
            except nats.errors.NoRespondersError:
                await asyncio.sleep(0.1)
            except nats.errors.Error:
                if self._client.is_connected:
                    return

    async def _send_result(self, task, headers, body, failed):
        size = _message_bytes(headers, body)
        if failed is None and size > self._client.max_payload:
            failed = (413, f"an answer of {size} bytes, more than the server takes")
        if failed is None:
            return await self._publish(task.reply, headers, body)
        code, why = failed
        words = "".join(c if c.isprintable() else " " for c in why[:_WORDS_MAX])
        headers = {"Nats-Service-Error-Code": str(code), "Nats-Service-Error": words}
        await self._publish(task.reply, headers, b"")


def _message_bytes(headers, body):
    """The size of a message, as a server counts it. nats-py compares the body alone with the limit, and the
    server closes the connection."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return len(body) + (len(f"NATS/1.0\r\n{lines}\r\n".encode()) if headers else 0)


async def _end_tasks():
    """Ends the tasks of the client for NATS. A task can lose its cancellation: until Python 3.12,
    `asyncio.wait_for` drops it if the connection is refused in the same moment. `asyncio.run`
    cancels each task once, and would wait for such a task for ever."""
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        try:
            await asyncio.wait(tasks, timeout=0.1)
        except asyncio.CancelledError:
            # A task that raises SystemExit has ended the loop, which cancels this one as well.
            pass


class _Service:
    """The service information of a listener (ADR-32), so that `nats micro` lists listeners."""

    def __init__(self, organism, listener, subject, lease):
        self._listener = listener
        self._id = secrets.token_hex(8)
        self._subject = subject
        self._metadata = {"organism": organism, "lease": str(lease), "kit": "python"}
        self._started = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        self._lock = threading.Lock()
        self._requests, self._errors, self._last, self._time = 0, 0, "", 0

    def subjects(self):
        for verb in ("PING", "INFO", "STATS"):
            for rest in ("", f".{self._listener}", f".{self._listener}.{self._id}"):
                yield verb, f"$SRV.{verb}{rest}"

    def count(self, nanoseconds, failed):
        with self._lock:
            self._requests += 1
            self._time += nanoseconds
            if failed:
                self._errors += 1
                self._last = failed[1]

    def answer(self, verb):
        told = {
            "type": f"io.nats.micro.v1.{verb.lower()}_response",
            "name": self._listener, "id": self._id, "version": _VERSION,
            "metadata": self._metadata,
        }
        endpoint = {
            "name": "deliveries", "subject": self._subject, "queue_group": self._listener,
        }
        if verb == "INFO":
            told.update(description="a listener of an organism", endpoints=[endpoint])
        if verb == "STATS":
            with self._lock:
                endpoint.update(
                    num_requests=self._requests, num_errors=self._errors, last_error=self._last,
                    processing_time=self._time,
                    average_processing_time=self._time // max(self._requests, 1),
                )
            told.update(started=self._started, endpoints=[endpoint])
        return told


def _is_no_closed_stream(record):
    """False for the warning that asyncio logs for each TLS stream that a server closes. The client reports the
    reason, and the stream closes with each attempt to reconnect."""
    return not record.getMessage().startswith("returning true from eof_received()")
