/**
 * A listener on NATS (docs/PROTOCOL.md, section 12). Only this module and `environment` need the client of
 * NATS, which is an optional package.
 *
 * Handlers share one thread with the connection: keep-alives continue while a handler waits, and not while
 * it computes.
 */

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { connect, errors, headers, type Msg, type MsgHdrs, type NatsConnection, type Subscription } from "@nats-io/transport-node";

import { missingMemory } from "./answer.js";
import { type BusEnvironment, busEnvironment, connectionOptions, FatalError, shownCredentials } from "./environment.js";
import type { Listener } from "./listener.js";
import { CallMemory, decoded } from "./memory.js";
import type { DeliveryChannel } from "./message.js";
import { endSoon, fail, ignoreLogErrors, logAfterCancel, logTrace, reasonOf } from "./program.js";
import { Service, type ServiceVerb } from "./service.js";
import { parse, quoted, UnwritableAnswer } from "./xml.js";

const ENVELOPE = "https://xml-pipeline.org/ns/envelope/v1";
const REASON_CHARACTERS_MAX = 200;
const RETRY_MILLISECONDS = 200;
/** Number of different texts that are remembered as logged. */
const LOGGED_TEXTS_MAX = 100;
/**
 * For how long a stopping listener waits for an unreachable server, and for how long an answer waits after an outage
 * for the pump.
 */
const GRACE_MILLISECONDS = 5000;
/** Within this time a server states that nobody subscribes to a subject. */
const PROBE_MILLISECONDS = 500;
const CALLER_GONE: ServiceFailure = { code: 499, reason: "its caller was gone before it was begun" };

interface ServiceFailure {
  readonly code: number;
  readonly reason: string;
}

/** What is published to the reply subject of a delivery. */
interface BusAnswer {
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** A delivery that this replica holds, and the channel from its handler to the pump. */
class BusDelivery implements DeliveryChannel {
  readonly #cancel = new AbortController();
  readonly reply: string;
  isSettled = false;

  constructor(
    readonly message: Msg,
    /** Number of outages of the connection before this delivery. */
    readonly outages: number,
    readonly publish: (subject: string, headers: Record<string, string>) => void,
  ) {
    this.reply = message.reply!;
  }

  get signal(): AbortSignal {
    return this.#cancel.signal;
  }

  heartbeat(): void {
    if (!this.isSettled) {
      this.publish(this.reply, { "Organism-Heartbeat": "1" });
    }
  }

  cancelIf(named: MsgHdrs | undefined): void {
    const own = this.message.headers;
    if (["Organism-Call", "Organism-Attempt"].every((name) => named?.get(name) === own?.get(name))) {
      this.#cancel.abort();
    }
  }

  /** The delivery as the frame that a child process would get. */
  frame(listener: string): Uint8Array {
    const { headers, data } = this.message;
    if (headers?.has("Organism-Messages")) {
      return data;
    }

    const header = (name: string) => {
      if (!headers?.has(`Organism-${name}`)) {
        throw new Error(`a delivery without its header Organism-${name}`);
      }
      return headers.get(`Organism-${name}`);
    };
    const trace = headers?.get("traceparent");
    const approved = headers?.get("Organism-Approved-Preview");
    const delivery = {
      "xmlns:e": ENVELOPE,
      call: header("Call"),
      attempt: header("Attempt"),
      thread: header("Thread"),
      listener,
      timeout: `PT${header("Timeout")}S`,
      ...(trace ? { traceparent: trace } : {}),
      ...(approved ? { approved_preview: approved } : {}),
    };
    const message = { id: header("Message"), kind: "call", seq: header("Seq"), new: "true" };
    const begin =
      `<e:delivery${attributes(delivery)}><e:message${attributes(message)}><e:meta>` +
      `<e:from>${header("From")}</e:from><e:time>${header("Time")}</e:time></e:meta>`;
    return Buffer.concat([Buffer.from(begin), data, Buffer.from("</e:message></e:delivery>")]);
  }
}

function attributes(values: Record<string, string>): string {
  return Object.entries(values)
    .map(([name, value]) => ` ${name}=${quoted(value)}`)
    .join("");
}

/** Answers on NATS until a signal ends the program. */
export async function serveBus(listener: Listener): Promise<void> {
  ignoreLogErrors(process.stdout);
  try {
    await new Bus(listener, busEnvironment()).serve();
    endSoon();
  } catch (error) {
    if (!(error instanceof FatalError)) {
      throw error;
    }
    fail(error.message);
  }
}

class Bus {
  readonly #memory = new CallMemory();
  readonly #service: Service;
  /** Subject for deliveries that build on messages that this replica remembers. */
  readonly #ownSubject: string;
  readonly #held: BusDelivery[] = [];
  readonly #waiting: BusDelivery[] = [];
  readonly #stopping = new AbortController();
  #working = 0;
  #isConnected = false;
  #outages = 0;
  /** Until this time, answers to deliveries from before the last outage wait for the pump. */
  #pumpAwaitedUntil = 0;
  #client!: NatsConnection;
  #settled = 0;
  #denied: string | undefined;
  /** What was logged since the connection was last made. */
  readonly #logged = new Set<string>();

  constructor(
    readonly listener: Listener,
    readonly place: BusEnvironment,
  ) {
    this.#ownSubject = `_INBOX_${place.listener}.${randomBytes(8).toString("hex")}`;
    this.#service = new Service(place.organism, place.listener, this.#subject("to"), place.leaseSeconds);
  }

  #subject(kind: "to" | "re" | "cancel", token?: string): string {
    const subject = `organism.${this.place.organism}.${kind}.${this.place.listener}`;
    return token ? `${subject}.${token}` : subject;
  }

  get #isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  async serve(): Promise<void> {
    for (const name of ["SIGTERM", "SIGINT"] as const) {
      process.on(name, () => this.#stopping.abort());
    }
    if (!(await this.#connect())) {
      log("asked to end before NATS was reached");
      return;
    }

    void this.#follow();
    const take = (_: Error | null, message: Msg) => this.#take(message);
    const deliveries = this.#client.subscribe(this.#subject("to"), { queue: this.place.listener, callback: take });
    const taken = [this.#client.subscribe(this.#ownSubject, { callback: take }), deliveries];
    if (this.listener.givesPreviews) {
      const subject = `_INBOX_${this.place.listener}.preview.${this.place.organism}`;
      taken.push(this.#client.subscribe(subject, { queue: this.place.listener, callback: take }));
    }
    this.#client.subscribe(this.#subject("cancel"), {
      callback: (_, message) => this.#held.forEach((task) => task.cancelIf(message?.headers)),
    });
    for (const [verb, subject] of this.#service.subjects()) {
      this.#client.subscribe(subject, { callback: (_, message) => this.#explain(verb, message) });
    }
    this.#announce();

    const live = setInterval(() => this.#keepAlive(), (this.place.leaseSeconds * 1000) / 3);
    await aborted(this.#stopping.signal);
    await this.#leave(taken);
    clearInterval(live);
    await this.#part();
  }

  /** Connects, and retries until it succeeds. Returns false if the program is to stop first. */
  async #connect(): Promise<boolean> {
    const options = connectionOptions(this.place);
    const signal = this.#stopping.signal;
    while (!this.#isStopping) {
      // A promise that outlives the attempt would keep the error of each attempt, and a listener
      // that is not removed would stay at the signal.
      let stop = () => {};
      const stopped = new Promise<void>((resolve) => {
        stop = () => resolve();
      });
      signal.addEventListener("abort", stop, { once: true });
      try {
        const connecting = connect(options);
        const client = await Promise.race([connecting, stopped]);
        if (client) {
          this.#client = client;
          this.#isConnected = true;
          this.#logged.clear();
          return true;
        }
        connecting.then((late) => late.close()).catch(() => {});
      } catch (error) {
        this.#logOnce(explained(error));
        await sleep(RETRY_MILLISECONDS, undefined, { signal }).catch(() => {});
      } finally {
        signal.removeEventListener("abort", stop);
      }
    }
    return false;
  }

  /** Follows the state of the connection. */
  async #follow(): Promise<void> {
    for await (const status of this.#client.status()) {
      if (status.type === "disconnect") {
        this.#isConnected = false;
        this.#outages += 1;
        this.#logOnce(`disconnected from ${status.server}`);
      } else if (status.type === "reconnect") {
        this.#isConnected = true;
        this.#pumpAwaitedUntil = performance.now() + GRACE_MILLISECONDS;
        this.#logged.clear();
        this.#announce();
      } else if (status.type === "error") {
        this.#refuse(status.error);
      }
    }
    this.#isConnected = false;
    this.#stopping.abort();
  }

  /** Ends the program on an error that waiting cannot repair. Logs every other error. */
  #refuse(error: Error): void {
    const reason = reasonOf(error);
    const text =
      error instanceof errors.AuthorizationError
        ? `${reason}: the servers do not take what they are shown: ${shownCredentials()}; after this was replaced, ` +
          "restart the listener"
        : reason;
    if (error instanceof errors.PermissionViolationError) {
      this.#reportDenied(error);
      // The first denial, of the deliveries, is the clearest. Those that follow have the same cause.
      if (this.#denied !== undefined) {
        return;
      }
      if (this.#isDenied(error)) {
        this.#end(text);
        return;
      }
    }
    this.#logOnce(text);
  }

  /** Ends the program because it lacks a right. The deliveries that it has are finished before. */
  #end(denial: string): void {
    const { listener, organism } = this.place;
    const text =
      `${denial}: the right to it is missing: look whether the organism is called ${organism} and this is the key of ` +
      `its listener ${listener}; \`organism nats-config\` writes a server's config with all that is needed`;
    if (this.#held.length > 0) {
      this.#logOnce(text);
    }
    this.#denied = `organism-listener: ${text}`;
    this.#stopping.abort();
  }

  /** Reports a denied operation to the pump, which records it. A denied report is not reported. */
  #reportDenied({ operation, subject }: { operation: string; subject: string }): void {
    if (operation === "subscription") {
      this.#publish(this.#subject("re", "denied"), {}, `subscribe ${subject}`);
    } else if (!subject.startsWith(`${this.#subject("re")}.`)) {
      this.#publish(this.#subject("re", "denied"), {}, `publish ${subject}`);
    }
  }

  /** Whether a server denies a permission that every listener needs. */
  #isDenied({ operation, subject }: { operation: string; subject: string }): boolean {
    return operation === "subscription"
      ? subject === this.#subject("to")
      : subject.startsWith(this.#subject("re", ""));
  }

  /**
   * The client reconnects five times a second, possibly for hours, and two errors may alternate. So each text is
   * logged once until the connection is made.
   */
  #logOnce(text: string): void {
    if (!this.#logged.has(text)) {
      if (this.#logged.size >= LOGGED_TEXTS_MAX) {
        this.#logged.clear();
      }
      this.#logged.add(text);
      log(text);
    }
  }

  /** Takes no further delivery, and finishes the deliveries that it has. */
  async #leave(subscriptions: readonly Subscription[]): Promise<void> {
    const drained = subscriptions.map((subscription) => subscription.drain().catch(() => {}));
    await Promise.race([Promise.all(drained), sleep(GRACE_MILLISECONDS, undefined, { ref: false })]);
    while (this.#held.length > 0) {
      await sleep(10);
    }
    if (this.#denied) {
      // What was reported of it must reach the server.
      const flushed = this.#client.flush().catch(() => {});
      await Promise.race([flushed, sleep(GRACE_MILLISECONDS, undefined, { ref: false })]);
      throw new FatalError(this.#denied);
    }
    if (this.#client.isClosed()) {
      throw new FatalError("the connection to NATS is closed, and stays so");
    }
  }

  /** Sends the last answers. Waits a limited time for an unreachable server. */
  async #part(): Promise<void> {
    const until = Math.max(performance.now(), this.#settled) + GRACE_MILLISECONDS;
    while (!this.#isConnected && performance.now() < until) {
      await sleep(10);
    }
    const flushed = this.#isConnected && this.#client.flush().then(() => true, () => false);
    const left = Math.max(until - performance.now(), 0);
    if (!(await Promise.race([flushed, sleep(left, false, { ref: false })]))) {
      // The leases of these deliveries end, and the pump delivers again.
      log("NATS is away: answers it has not got are lost");
    }
    await Promise.race([this.#client.close(), sleep(100)]);
  }

  #announce(): void {
    if (!this.#isStopping) {
      this.#publish(this.#subject("re", "here"), this.#lease());
    }
  }

  #lease(): Record<string, string> {
    return { "Organism-Lease": String(this.place.leaseSeconds) };
  }

  /** Sends a keep-alive for each held delivery, three times in each lease. */
  #keepAlive(): void {
    this.#held.forEach((task) => this.#publish(task.reply, this.#lease()));
  }

  /** Whether to answer a request for service information from this reply subject. */
  #mayAnswer(reply: string | undefined): reply is string {
    return !!reply && (!reply.startsWith("organism.") || reply === this.#subject("re", "here"));
  }

  #explain(verb: ServiceVerb, message: Msg | undefined): void {
    const reply = message?.reply;
    // A stopping replica must not announce itself any more.
    if (this.#mayAnswer(reply) && !this.#isStopping) {
      this.#publish(reply, this.#lease(), JSON.stringify(this.#service.answer(verb)));
    }
  }

  /** The client drops what is published while it has no connection. */
  #publish(subject: string, values: Record<string, string>, body = ""): void {
    const map = headers();
    Object.entries(values).forEach(([name, value]) => map.set(name, value));
    if (!this.#client.isClosed()) {
      this.#client.publish(subject, body, { headers: map });
    }
  }

  #take(message: Msg | undefined): void {
    if (message?.reply) {
      const task = new BusDelivery(message, this.#outages, (subject, values) => this.#publish(subject, values));
      this.#held.push(task);
      this.#waiting.push(task);
      this.#begin();
    }
  }

  /** Begins as many waiting deliveries as there are free workers. */
  #begin(): void {
    while (this.#working < this.place.workers) {
      const task = this.#waiting.shift();
      if (!task) {
        return;
      }
      this.#working += 1;
      void this.#work(task).finally(() => {
        this.#working -= 1;
        this.#begin();
      });
    }
  }

  async #work(task: BusDelivery): Promise<void> {
    const begun = performance.now();
    let answer: BusAnswer = { headers: {}, body: "" };
    let failure = task.signal.aborted ? CALLER_GONE : undefined;
    try {
      if (!failure) {
        answer = await this.#attend(task);
      }
    } catch (error) {
      if (error instanceof UnwritableAnswer) {
        log(error.message);
        failure = { code: 422, reason: error.message };
      } else if (task.signal.aborted) {
        logAfterCancel(error);
      } else {
        logTrace(error);
        failure = { code: 500, reason: reasonOf(error) };
      }
    }

    this.#service.count(performance.now() - begun, failure?.reason);
    // No keep-alive or heartbeat may follow the answer of a delivery.
    task.isSettled = true;
    this.#settled = performance.now();
    await this.#untilSubscribed(task);
    this.#held.splice(this.#held.indexOf(task), 1);
    this.#sendResult(task, failure ? failed(failure) : answer);
  }

  async #attend(task: BusDelivery): Promise<BusAnswer> {
    const frame = task.frame(this.place.listener);
    const delivery = parse(decoded(frame));
    const handled = await this.listener.handle(delivery, frame, this.#memory, task);
    if (!handled) {
      return { headers: {}, body: missingMemory(delivery) };
    }
    const remembers: Record<string, string> = { "Organism-Remembers": this.#ownSubject };
    return { headers: handled.isRemembered ? remembers : {}, body: handled.payloads };
  }

  /** Waits for the connection: as long as it takes, or when stopping, for a limited time. */
  async #connection(): Promise<void> {
    while (!this.#isConnected && !this.#client.isClosed()) {
      if (this.#isStopping && performance.now() > this.#settled + GRACE_MILLISECONDS) {
        return;
      }
      await sleep(10);
    }
  }

  /**
   * Waits after an outage until the pump subscribes to the answer of a delivery again. The servers drop an answer to
   * which nobody subscribes. The time is limited, because the pump may have ended.
   */
  async #untilSubscribed(task: BusDelivery): Promise<void> {
    const lease = headers();
    Object.entries(this.#lease()).forEach(([name, value]) => lease.set(name, value));
    for (;;) {
      await this.#connection();
      if (!this.#isConnected || task.outages === this.#outages || performance.now() > this.#pumpAwaitedUntil) {
        return;
      }
      try {
        // The pump does not respond to a keep-alive, but a server does for a subject that nobody subscribes to.
        await this.#client.request(task.reply, "", { headers: lease, timeout: PROBE_MILLISECONDS });
        // A stream that captures the subject has acknowledged the keep-alive.
        return;
      } catch (error) {
        if (!(error instanceof errors.RequestError && error.isNoResponders()) && this.#isConnected) {
          return;
        }
        await sleep(100);
      }
    }
  }

  #sendResult(task: BusDelivery, answer: BusAnswer): void {
    const bytes = Buffer.byteLength(answer.body);
    try {
      this.#publish(task.reply, answer.headers, answer.body);
    } catch (error) {
      const isTooLarge = error instanceof errors.InvalidArgumentError;
      const reason = isTooLarge ? `an answer of ${bytes} bytes, more than the server takes` : reasonOf(error);
      log(reason);
      const { headers, body } = failed({ code: isTooLarge ? 413 : 500, reason });
      this.#publish(task.reply, headers, body);
    }
  }
}

function failed({ code, reason }: ServiceFailure): BusAnswer {
  const printable = reason.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ");
  const short = [...printable].slice(0, REASON_CHARACTERS_MAX).join("");
  return { headers: { "Nats-Service-Error-Code": String(code), "Nats-Service-Error": short }, body: "" };
}

/** What is said of a failed connection. Throws where waiting cannot repair it. */
function explained(error: unknown): string {
  const cause = (error as Error).cause ?? error;
  const text = reasonOf(error);
  const code = String((cause as NodeJS.ErrnoException).code ?? "");
  if (error instanceof errors.AuthorizationError) {
    throw new FatalError(`organism-listener: ${text}: the servers do not take what they are shown: ${shownCredentials()}`);
  }
  if (/CERT|SELF_SIGNED|UNABLE_TO|ERR_TLS|ERR_SSL|ERR_OSSL/.test(code)) {
    const authority = process.env["ORGANISM_BUS_CA"] || "the system's authorities";
    throw new FatalError(`organism-listener: ${text} (${code}): a certificate problem: ORGANISM_BUS_CA trusts ${authority}`);
  }
  if (error instanceof errors.TimeoutError) {
    // A client learns of this demand of TLS 1.3 only after its handshake, and nats.js does not report it.
    return `${text}: the server did not accept the connection; if its \`tls\` section has \`verify\`, remove that: the \
server demands a certificate of its clients, and a listener shows none`;
  }
  return code && !text.includes(code) ? `${text} (${code})` : text;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
    }
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

function log(text: string): void {
  process.stderr.write(`organism-listener: ${text}\n`);
}
