/** The messages of calls, kept between deliveries (docs/PROTOCOL.md, section 3). */

import { needed } from "./message.js";
import { type Element, parse } from "./xml.js";

const REMEMBERED_CALLS_MAX = 1024;
const REMEMBERED_BYTES_MAX = 16 * 2 ** 20;

/** The text of a frame. Throws where it is not UTF-8. */
export function decoded(frame: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(frame);
}

/** What a call's earlier deliveries held. */
export interface RememberedMessages {
  readonly messages: readonly Element[];
  readonly frames: readonly Uint8Array[];
}

/**
 * Keeps the bytes of deliveries and parses them again, because parsed elements take many times as much
 * room. Beyond a bound, the call that was put in first is dropped.
 */
export class CallMemory {
  readonly #calls = new Map<string, readonly Uint8Array[]>();
  #bytes = 0;

  /** Returns the messages on which a delivery builds; undefined if the memory lacks them. */
  take(delivery: Element): RememberedMessages | undefined {
    const frames = this.#take(needed(delivery, "call"));
    const after = delivery.attributes.get("after");
    if (after === undefined) {
      return { messages: [], frames: [] };
    }
    const messages = frames.flatMap((frame) => parse(decoded(frame)).elements);
    return messages.length === Number(after) ? { messages, frames } : undefined;
  }

  /** Remembers the frames of a call. Returns false if they are too large. */
  put(call: string, frames: readonly Uint8Array[]): boolean {
    this.#take(call);
    const size = bytes(frames);
    if (size > REMEMBERED_BYTES_MAX) {
      return false;
    }

    this.#calls.set(call, frames);
    this.#bytes += size;
    while (this.#calls.size > REMEMBERED_CALLS_MAX || this.#bytes > REMEMBERED_BYTES_MAX) {
      const [oldest] = this.#calls.keys();
      this.#take(oldest!);
    }
    return true;
  }

  #take(call: string): readonly Uint8Array[] {
    const frames = this.#calls.get(call) ?? [];
    this.#calls.delete(call);
    this.#bytes -= bytes(frames);
    return frames;
  }
}

function bytes(frames: readonly Uint8Array[]): number {
  return frames.reduce((sum, frame) => sum + frame.length, 0);
}
