/** A listener as a child process: NUL-delimited frames on its pipes (docs/PROTOCOL.md, section 2). */

import { missingMemory, named, unwritable } from "./answer.js";
import type { Listener } from "./listener.js";
import { CallMemory, decoded } from "./memory.js";
import { type DeliveryChannel, needed } from "./message.js";
import { endSoon, fail, logAfterCancel, logTrace } from "./program.js";
import { type Element, parse, UnwritableAnswer } from "./xml.js";

const FRAME_BYTES_MAX = 16 * 2 ** 20;
const PROBE_MILLISECONDS = 500;
const CANCEL = Buffer.from("<cancel");

/** Splits bytes into frames, each without its NUL. */
export class FrameReader {
  #partial: Uint8Array[] = [];
  #bytes = 0;

  /** Returns the frames that these bytes complete. Throws where a frame is too large. */
  read(bytes: Uint8Array): Uint8Array[] {
    const frames: Uint8Array[] = [];
    let rest = bytes;
    for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
      this.#add(rest.subarray(0, end));
      frames.push(Buffer.concat(this.#partial));
      this.#partial = [];
      this.#bytes = 0;
      rest = rest.subarray(end + 1);
    }
    this.#add(rest);
    return frames;
  }

  /** Whether a frame has begun. White space alone begins none. */
  get isWithinFrame(): boolean {
    return Buffer.concat(this.#partial).toString("latin1").trim() !== "";
  }

  #add(bytes: Uint8Array): void {
    this.#bytes += bytes.length;
    if (this.#bytes > FRAME_BYTES_MAX) {
      throw new Error(`a frame of more than ${FRAME_BYTES_MAX} bytes`);
    }
    this.#partial.push(bytes);
  }
}

/** A delivery that this process has, and the channel from its handler to the pump. */
class StdioDelivery implements DeliveryChannel {
  readonly #cancel = new AbortController();
  #isAnswered = false;

  constructor(
    readonly frame: Uint8Array,
    readonly delivery: Element,
    readonly write: (text: string) => Promise<void>,
  ) {}

  get signal(): AbortSignal {
    return this.#cancel.signal;
  }

  /** Sends a heartbeat. After the answer, a heartbeat would be one for the next delivery. */
  heartbeat(): void {
    if (!this.#isAnswered) {
      void this.write("<heartbeat/>");
    }
  }

  cancelIf(frame: string): void {
    if (frame.includes(needed(this.delivery, "call"))) {
      this.#cancel.abort();
    }
  }

  async answer(text: string): Promise<void> {
    this.#isAnswered = true;
    await this.write(text);
  }
}

/** Answers deliveries until the pump closes standard input. */
export async function serveStdio(listener: Listener): Promise<void> {
  const write = takeOver();
  const memory = new CallMemory();
  const reader = new FrameReader();
  const held: StdioDelivery[] = [];
  let working = Promise.resolve();

  const attend = async (task: StdioDelivery) => {
    try {
      const text = await answerTo(task, listener, memory);
      held.shift();
      await task.answer(text);
    } catch (error) {
      crash(error);
    }
  };
  const take = (frame: Uint8Array) => {
    if (CANCEL.equals(frame.subarray(0, CANCEL.length))) {
      // A cancel for a call that has been answered came too late.
      held.forEach((task) => task.cancelIf(decoded(frame)));
      return;
    }
    const task = new StdioDelivery(frame, parse(decoded(frame)), write);
    held.push(task);
    working = working.then(() => attend(task));
  };

  await new Promise<void>((resolve) => {
    process.stdin.on("data", (bytes: Uint8Array) => {
      try {
        reader.read(bytes).forEach(take);
      } catch (error) {
        crash(error);
      }
    });
    process.stdin.on("error", crash);
    process.stdin.on("end", resolve);
  });
  // The pump may have ended while a handler works, or the delivery was read from a file. Node shows only with
  // a write whether a pipe still has a reader.
  const probe = setInterval(() => held[0]?.heartbeat(), PROBE_MILLISECONDS);
  await working;
  clearInterval(probe);
  if (reader.isWithinFrame) {
    fail("the input ended within a frame: try a listener with `organism listener test`");
  }
  endSoon();
}

/** Returns the frame that answers a delivery. If the answer cannot be sent, the frame has the reason. */
async function answerTo(task: StdioDelivery, listener: Listener, memory: CallMemory): Promise<string> {
  const { delivery, frame } = task;
  try {
    const handled = await listener.handle(delivery, frame, memory, task);
    return handled ? bounded(named(delivery, handled.payloads, handled.isRemembered)) : missingMemory(delivery);
  } catch (error) {
    if (error instanceof UnwritableAnswer) {
      process.stderr.write(`organism-listener: ${error.message}\n`);
      return unwritable(delivery, error);
    }
    if (task.signal.aborted) {
      logAfterCancel(error);
      return named(delivery, "", false);
    }
    throw error;
  }
}

function bounded(frame: string): string {
  const bytes = Buffer.byteLength(frame);
  if (bytes > FRAME_BYTES_MAX) {
    throw new UnwritableAnswer(`it has ${bytes} bytes, and a frame has at most ${FRAME_BYTES_MAX}`);
  }
  return frame;
}

/** Ends the process, whose attempt has crashed then (section 7). */
function crash(error: unknown): never {
  logTrace(error);
  process.exit(1);
}

/**
 * Takes over standard output for frames: what a handler prints goes to the log. Returns a function that
 * writes one frame.
 */
function takeOver(): (text: string) => Promise<void> {
  const write = process.stdout.write.bind(process.stdout);
  process.stdout.write = process.stderr.write.bind(process.stderr);
  process.stdout.on("error", giveUp);

  return (text) => {
    const frame = Buffer.from(`${text}\0`);
    // A write fails only where the pump has ended, which `giveUp` handles.
    return new Promise((resolve) => write(frame, () => resolve()));
  };
}

/** Ends the program, since no pump can take its answer: the next pump delivers the call again (section 8). */
function giveUp(): never {
  fail("the pump has ended; this call is given up");
}
