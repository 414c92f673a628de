/** What a handler gets: the request, the messages since, and the way back to the pump while it works. */

import { createHash } from "node:crypto";

import { preview } from "./answer.js";
import type { Element } from "./xml.js";

const ENVELOPE = "{https://xml-pipeline.org/ns/envelope/v1}";
const THREAD_RESULT = "{https://xml-pipeline.org/ns/core/v1}thread-result";
const HEARTBEAT_MILLISECONDS = 10_000;

/** How a message came about (docs/PROTOCOL.md, section 3). */
export type MessageKind = "call" | "reply" | "self" | "note" | "system";

/** One message of a delivery (section 3). */
export class Message {
  /** A UUID, the same at every attempt. */
  readonly id: string;
  readonly kind: MessageKind;
  /** The place of the message in its thread. */
  readonly seq: number;
  /** Whether earlier deliveries of the call did not have this message. */
  readonly new: boolean;
  readonly sender: string;
  /** RFC 3339, UTC. */
  readonly time: string;
  readonly payload: Element;

  constructor(source: Element, isRemembered: boolean) {
    const [meta, payload] = source.elements;
    if (!meta || !payload) {
      throw new Error("a message has no payload");
    }
    this.id = needed(source, "id");
    this.kind = needed(source, "kind") as MessageKind;
    this.seq = Number(needed(source, "seq"));
    this.new = source.attributes.get("new") === "true" && !isRemembered;
    this.sender = meta.child(`${ENVELOPE}from`)?.text ?? "";
    this.time = meta.child(`${ENVELOPE}time`)?.text ?? "";
    this.payload = payload;
  }

  /** The name of the payload, `{namespace}local`. */
  get name(): string {
    return this.payload.name;
  }

  /**
   * The text of a child element of the payload, in the payload's own namespace. Without such a child,
   * returns `otherwise`, or throws if it is not given.
   */
  text(child: string, otherwise?: string): string {
    const text = this.payload.child(child)?.text ?? otherwise;
    if (text === undefined) {
      const known = this.payload.elements.map((element) => element.local).join(", ") || "no children";
      throw new Error(
        `<${this.payload.local}> has no child \`${child}\`, it has ${known}; for a child that may be missing, ` +
          `write text("${child}", "")`,
      );
    }
    return text;
  }
}

/** The way from a handler to the pump. */
export interface DeliveryChannel {
  heartbeat(): void;
  /** Aborted when the call is cancelled. */
  readonly signal: AbortSignal;
}

/** A call to answer: the message that opened it, and in `results` the messages since. */
export class Request extends Message {
  /** The messages of the call since its request, oldest first. */
  readonly results: readonly Message[];
  readonly call: string;
  /** `epoch.n`. The same call may come again at a higher attempt. */
  readonly attempt: string;
  readonly thread: string;
  readonly listener: string;
  /** What this attempt has: an XSD duration, such as `PT60S`. */
  readonly timeout: string;
  /** W3C trace context of this attempt, if there is one: the parent of the handler's own spans. */
  readonly traceparent: string | undefined;
  /** SHA-256 of the preview that a person approved with the call, if there is one. */
  readonly approvedPreview: string | undefined;
  readonly #channel: DeliveryChannel;

  constructor(delivery: Element, messages: readonly Element[], channel: DeliveryChannel) {
    const [first, ...rest] = messages;
    if (!first) {
      throw new Error("a delivery has no message");
    }
    const known = messages.length - delivery.elements.length;
    super(first, known > 0);
    this.results = rest.map((message, index) => new Message(message, index + 1 < known));
    this.call = needed(delivery, "call");
    this.attempt = needed(delivery, "attempt");
    this.thread = needed(delivery, "thread");
    this.listener = needed(delivery, "listener");
    this.timeout = needed(delivery, "timeout");
    this.traceparent = delivery.attributes.get("traceparent");
    this.approvedPreview = delivery.attributes.get("approved_preview");
    this.#channel = channel;
  }

  /**
   * Whether the call may be carried out, if this is its preview now (section 3). After a failed attempt, the
   * work of that attempt may be what has changed: look first whether this message is done already.
   */
  holds(text: string): boolean {
    const digest = createHash("sha256").update(preview(text)).digest("hex");
    return this.approvedPreview === undefined || this.approvedPreview === digest;
  }

  /** The results of threads so far, oldest first. */
  get threadResults(): ThreadResult[] {
    const results = this.results.filter((result) => result.kind === "system" && result.name === THREAD_RESULT);
    return results.map((result) => new ThreadResult(result));
  }

  /** Aborted when the caller is gone. The handler must still answer, possibly with nothing (section 6). */
  get signal(): AbortSignal {
    return this.#channel.signal;
  }

  /** Whether the caller is gone. */
  get cancelled(): boolean {
    return this.signal.aborted;
  }

  /** Sends a heartbeat, which extends the deadline of the attempt (section 5). */
  heartbeat(): void {
    this.#channel.heartbeat();
  }

  /**
   * Sends heartbeats until this promise is settled, the first at once: the time-out may be shorter than the time
   * between two heartbeats. Returns the value of the promise.
   */
  async keepAlive<T>(work: PromiseLike<T>): Promise<T> {
    this.heartbeat();
    const timer = setInterval(() => this.heartbeat(), HEARTBEAT_MILLISECONDS);
    try {
      return await work;
    } finally {
      clearInterval(timer);
    }
  }
}

/** The result of a call in another thread. */
export class ThreadResult {
  readonly thread: string;
  readonly status: "completed" | "failed" | "cancelled";
  readonly payloads: readonly Element[];
  readonly new: boolean;

  constructor(message: Message) {
    this.thread = needed(message.payload, "thread_id");
    this.status = needed(message.payload, "status") as ThreadResult["status"];
    this.payloads = message.payload.elements;
    this.new = message.new;
  }

  /** The last part of the thread's id. */
  get label(): string {
    return this.thread.slice(this.thread.lastIndexOf(".") + 1);
  }
}

/** The value of an attribute that the protocol demands. */
export function needed(source: Element, attribute: string): string {
  const value = source.attributes.get(attribute);
  if (value === undefined) {
    throw new Error(`<${source.local}> has no ${attribute}`);
  }
  return value;
}
