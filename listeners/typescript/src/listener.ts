/** The handlers of a program, and the ways to serve them. */

import { type Answer, checkedText, preview } from "./answer.js";
import type { CallMemory } from "./memory.js";
import { type DeliveryChannel, needed, Request } from "./message.js";
import { fail, ignoreLogErrors, logTrace } from "./program.js";
import { serveStdio } from "./stdio.js";
import type { Element } from "./xml.js";

/**
 * Answers one call. What it throws is logged, and the attempt has crashed: the pump tries again. What it throws after
 * its call was cancelled is logged alone. An answer that cannot be sent is logged, too, and ends the call.
 */
export type Handler = (request: Request) => Answer | Promise<Answer>;

/** Shows what one call would do. What it throws is logged. Then, and if it returns nothing, no preview is given. */
export type PreviewHandler = (request: Request) => PreviewText | Promise<PreviewText>;

/** What a handler for previews returns. */
export type PreviewText = string | null | undefined | void;

const PREVIEW_REQUEST = "{https://xml-pipeline.org/ns/envelope/v1}preview";

/** Variables that only a listener on NATS has. */
const ON_NATS = [
  "ORGANISM_BUS_NKEY",
  "ORGANISM_BUS_CREDENTIALS",
  "ORGANISM_BUS_CA",
  "ORGANISM_BUS_LEASE",
  "ORGANISM_BUS_WORKERS",
  "ORGANISM_NAME",
];

/** The text of an answer, and whether its call is remembered now. */
export interface HandledDelivery {
  readonly payloads: string;
  readonly isRemembered: boolean;
}

/** The handlers of a program by the payload name that opens a call. */
export class Listener {
  readonly #handlers = new Map<string, Handler>();
  #previews: PreviewHandler | undefined;

  /** Registers a handler for calls opened by payloads of this name, or these names: `{namespace}local`. */
  accepts(names: string | readonly string[], handler: Handler): this {
    for (const name of [names].flat()) {
      if (this.#handlers.has(name)) {
        throw new Error(`two handlers for ${name}`);
      }
      this.#handlers.set(name, handler);
    }
    return this;
  }

  /**
   * Registers the handler that returns what a call would do, as a text. It must change nothing. The
   * handler of the call then acts only if `request.holds(text)`, and returns `stalePreview()` otherwise.
   */
  previews(handler: PreviewHandler): this {
    if (this.#previews) {
      throw new Error("two handlers for previews");
    }
    this.#previews = handler;
    return this;
  }

  /** Whether the program has a handler for previews. */
  get givesPreviews(): boolean {
    return this.#previews !== undefined;
  }

  /**
   * Answers deliveries until the pump closes standard input. If the environment names a server in
   * ORGANISM_BUS_URL, answers on NATS until a signal ends the program (docs/PROTOCOL.md, section 12).
   */
  async serve(): Promise<void> {
    ignoreLogErrors(process.stderr);
    if (this.#handlers.size === 0) {
      fail("there are no handlers: register them with `accepts` before `serve()`");
    }
    if (process.env["ORGANISM_BUS_URL"]) {
      const { serveBus } = await busModule();
      return serveBus(this);
    }

    // A pump sets none of these for a child process. A supervisor would take the end of empty input for a success.
    const set = ON_NATS.find((name) => process.env[name]);
    if (set !== undefined) {
      fail(`${set} is set, and needs ORGANISM_BUS_URL beside it; leave it out for a child process`);
    }
    return serveStdio(this);
  }

  /**
   * Answers one delivery with its handler. Returns undefined if the memory lacks messages on which the
   * delivery builds. Throws an `UnwritableAnswer` if the answer cannot be sent.
   */
  async handle(
    delivery: Element,
    frame: Uint8Array,
    memory: CallMemory,
    channel: DeliveryChannel,
  ): Promise<HandledDelivery | undefined> {
    const remembered = memory.take(delivery);
    if (!remembered) {
      return undefined;
    }

    const messages = [...remembered.messages, ...delivery.elements];
    const request = new Request(delivery, messages, channel);
    if (delivery.name === PREVIEW_REQUEST) {
      return { payloads: await this.#preview(request), isRemembered: false };
    }

    const handler = this.#handlers.get(request.name);
    if (!handler) {
      const known = [...this.#handlers.keys()].sort().join(", ");
      throw new Error(`no handler for ${request.name}, only for ${known}; names have the form {namespace}local`);
    }
    const payloads = checkedText(await handler(request));
    const isRemembered = memory.put(needed(delivery, "call"), [...remembered.frames, frame]);
    return { payloads, isRemembered };
  }

  /**
   * Answers the request for a preview. The answer is empty if there is none: the person learns so, and
   * the listener goes on with other calls.
   */
  async #preview(request: Request): Promise<string> {
    if (!this.#previews) {
      const advice = "so take `previews = true` out of its config";
      process.stderr.write(`no preview: this listener has no handler for previews, ${advice}\n`);
      return "";
    }
    try {
      const text = await this.#previews(request);
      if (text === undefined || text === null) {
        process.stderr.write("no preview: the handler for previews returned nothing\n");
        return "";
      }
      return preview(text);
    } catch (error) {
      logTrace(error);
      return "";
    }
  }
}

/** Loads what speaks NATS only where it is needed: its package is an optional one. */
async function busModule(): Promise<typeof import("./bus.js")> {
  try {
    return await import("./bus.js");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ERR_MODULE_NOT_FOUND") {
      const why = "ORGANISM_BUS_URL is set, and @nats-io/transport-node is not there";
      fail(`${why}: npm install @nats-io/transport-node`);
    }
    throw error;
  }
}
