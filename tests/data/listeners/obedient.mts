// Does what the payload says, through the TypeScript kit. The same words as in obedient.py.
import { setTimeout as sleep } from "node:timers/promises";

import { element, type Element, Listener, type Request, stalePreview } from "organism-listener";

const NS = "{urn:test}";

function done(text: string | number): Element {
  return element(`${NS}done`, text);
}

function count(text: string): number[] {
  return Array.from({ length: Number(text) }, (_, index) => index);
}

function wouldDo(request: Request): string {
  const text = request.payload.text;
  if (text === "unshown") {
    return undefined as unknown as string;
  }
  return text === "control" ? "would do \0" : `would do ${text}`;
}

await new Listener()
  .previews(wouldDo)
  .accepts(`${NS}do`, async (request) => {
    const [, word, argument = ""] = /^(\S*) ?([^]*)$/.exec(request.payload.text) ?? [];
    switch (word) {
      case "echo":
        return done(argument);
      case "nothing":
        return;
      case "child":
        return done(request.text(argument));
      case "child-or":
        return done(request.text(argument, "none"));
      case "many":
        return count(argument).map(done);
      case "crash":
        throw new Error(argument);
      case "beat":
        count(argument).forEach(() => request.heartbeat());
        return done("beaten");
      case "wait":
        request.heartbeat();
        await new Promise((resolve) => request.signal.addEventListener("abort", resolve));
        return done("gone");
      case "stuck":
        request.heartbeat();
        return new Promise(() => {});
      case "sleep":
        await sleep(Number(argument) * 1000);
        return done("slept");
      case "pid":
        return done(process.pid);
      case "count": {
        const messages = [request, ...request.results];
        return done(`${messages.length} ${messages.filter((message) => message.new).length}`);
      }
      case "if-shown":
        return request.holds(wouldDo(request)) ? done(argument) : stalePreview("no");
      case "print":
        console.log(argument);
        return done(`${process.env["ORGANISM_LISTENER"]} ${request.attempt} ${request.thread}`);
      case "string":
        return `<done xmlns="urn:test">${argument}</done>`;
      case "control":
        return done("\0");
      case "huge":
        return done("x".repeat(17 * 2 ** 20));
      default:
        throw new Error(word);
    }
  })
  .serve();
