/** The end of the program, and what it logs. */

import { inspect } from "node:util";

/** Ends the program within a second, also where connections or timers of its own would keep it. */
export function endSoon(): void {
  setTimeout(() => process.exit(), 1000).unref();
}

/** Ends the program with this reason and the code 1. */
export function fail(reason: string): never {
  process.stderr.write(`${reason}\n`);
  process.exit(1);
}

/** Ignores errors of the log, such as that nobody reads it any more: they are no reason to lose an answer. */
export function ignoreLogErrors(log: NodeJS.WriteStream): void {
  log.on("error", () => {});
}

/** Why something was thrown, in one line. */
export function reasonOf(error: unknown): string {
  return described(() => (error instanceof Error ? `${error.name}: ${error.message}` : String(error)));
}

/** Writes what was thrown to the log. The reason is the last line, which a pump keeps with a crashed attempt. */
export function logTrace(error: unknown): void {
  process.stderr.write(`${described(() => inspect(error))}\n${reasonOf(error)}\n`);
}

/**
 * Logs what a handler threw after its call was cancelled, in one line. That is no crash: an operation that has the
 * signal of the request, such as `fetch`, rejects then.
 */
export function logAfterCancel(error: unknown): void {
  process.stderr.write(`organism-listener: after a cancel: ${reasonOf(error)}\n`);
}

/** A text of what was thrown, which can be a value without one, such as `Object.create(null)`. */
function described(describe: () => string): string {
  try {
    return describe();
  } catch {
    return "a value without a text was thrown";
  }
}
