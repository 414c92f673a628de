/** What a handler returns, the words of the core among it, and the frames that hold it. */

import { needed } from "./message.js";
import { reasonOf } from "./program.js";
import {
  Element,
  element,
  escaped,
  notXml,
  quoted,
  replaced,
  type Scalar,
  textOfScalar,
  UnwritableAnswer,
} from "./xml.js";

const ENVELOPE = "https://xml-pipeline.org/ns/envelope/v1";
const CORE = "https://xml-pipeline.org/ns/core/v1";

/** A payload: an element, or a text that holds one. */
export type Payload = Element | string;
/** What a handler returns. Nothing is an acknowledgement. */
export type Answer = Payload | readonly Payload[] | null | undefined | void;

/** What a thread may use, and how long it lives. */
export interface ThreadOptions {
  /** The last part of the thread's id; the core makes it unique. */
  readonly label?: string | undefined;
  /** Whether the thread is cancelled when this call ends. */
  readonly bound?: boolean | undefined;
  readonly tokens?: number | undefined;
  readonly money?: number | string | undefined;
  /** An XSD duration, such as `PT10M`. */
  readonly timeout?: string | undefined;
}

/** Opens a thread beneath this one, with `payload` as its first call (docs/PROTOCOL.md, section 11). */
export function spawn(payload: Payload, options: ThreadOptions = {}): Payload {
  const { label, bound, tokens, money, timeout } = options;
  const attributes = { suggested_sub_id: label, tokens, money, timeout, bound: bound ? "true" : undefined };
  return core("spawn-thread", attributes, `<c:initial-payload>${checkedText(payload)}</c:initial-payload>`);
}

/** Opens a call in a thread beneath this one. */
export function sendToThread(thread: string, payload: Payload): Payload {
  return core("send-to-thread", { thread_id: thread }, checkedText(payload));
}

/** Delays the next delivery of the call until all, or any, of its threads and timers are done. */
export function wait(until: "all" | "any" = "all"): Payload {
  return core("wait", { for: until });
}

/** The payload with a preview. Characters that XML cannot contain are replaced. */
export function preview(text: string): string {
  return textOf(element(`{${CORE}}preview`, replaced(String(text))));
}

/**
 * The answer to a call whose approved preview holds no more. Nothing was changed. Characters that XML cannot contain
 * are replaced.
 */
export function stalePreview(reason: string): Payload {
  return element(`{${CORE}}stale-preview`, replaced(String(reason)));
}

/** A payload of the core with a prefix: a default namespace would change the payloads inside it. */
function core(local: string, attributes: Record<string, Scalar | null | undefined>, inner = ""): string {
  let words = "";
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) {
      words += ` ${key}=${quoted(textOfScalar(value, `the attribute \`${key}\` of ${local}`))}`;
    }
  }
  const start = `c:${local} xmlns:c="${CORE}"${words}`;
  return inner ? `<${start}>${inner}</c:${local}>` : `<${start}/>`;
}

/** The text of an answer. Throws an `UnwritableAnswer` if it has no text, or one that XML cannot contain. */
export function checkedText(answer: Answer): string {
  const text = writableText(answer);
  const found = notXml(text);
  if (found) {
    throw new UnwritableAnswer(`XML cannot contain the character ${found}`);
  }
  return text;
}

function writableText(answer: Answer): string {
  try {
    return textOf(answer);
  } catch (error) {
    const advice = "return elements, texts or arrays of these; make the text of an element a string or a number";
    throw new UnwritableAnswer(`${advice} (${reasonOf(error)})`);
  }
}

function textOf(answer: Answer): string {
  if (answer === undefined || answer === null) {
    return "";
  }
  if (Array.isArray(answer)) {
    return answer.map(textOf).join("");
  }
  if (typeof answer === "string" || answer instanceof Element) {
    return String(answer);
  }

  // Without the check of types, such as in JavaScript. Another object may be empty, and would acknowledge.
  throw new TypeError(`this is of type ${typeName(answer)}`);
}

/** The name of the class of a value, such as `Map`, or else its type. */
function typeName(value: unknown): string {
  return (typeof value === "object" && value?.constructor?.name) || typeof value;
}

/** An answer with the reason why there are no payloads. The pump does not try again. */
export function unwritable(delivery: Element, { message }: UnwritableAnswer): string {
  return named(delivery, escaped(message), false);
}

/** An answer that names its call (section 4). */
export function named(delivery: Element, payloads: string, isRemembered: boolean): string {
  const memory = isRemembered ? ' remembers="true"' : "";
  return `<e:answer ${names(delivery)}${memory}>${payloads}</e:answer>`;
}

/** Requests all messages of a call, because the memory lacks those on which its delivery builds. */
export function missingMemory(delivery: Element): string {
  return `<e:missing-memory ${names(delivery)}/>`;
}

function names(delivery: Element): string {
  const [call, attempt] = [needed(delivery, "call"), needed(delivery, "attempt")];
  return `xmlns:e="${ENVELOPE}" call=${quoted(call)} attempt=${quoted(attempt)}`;
}
