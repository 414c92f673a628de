// Does what the payload says, through the TypeScript kit. The same words as in obedient.py.
import { setTimeout as sleep } from "node:timers/promises";

import { Element, element, Listener, type Payload, type Request, spawn, stalePreview } from "organism-listener";

const NS = "{urn:test}";

function done(text: string | number): Element {
  return element(`${NS}done`, text);
}

function count(text: string): number[] {
  return Array.from({ length: Number(text) }, (_, index) => index);
}

const withoutText = {
  toString() {
    throw new Error("this value has no text");
  },
};
const kept: Request[] = [];

function wouldDo(request: Request): string | undefined {
  const text = request.payload.text;
  if (text === "unshown") {
    return undefined;
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
      case "crash-with-work":
        setTimeout(() => console.log("the work has ended"), 10_000);
        throw new Error(argument);
      case "beat":
        count(argument).forEach(() => request.heartbeat());
        return done("beaten");
      case "wait":
        request.heartbeat();
        await new Promise((resolve) => request.signal.addEventListener("abort", resolve));
        return done("gone");
      case "fail-after-cancel":
        request.heartbeat();
        return sleep(1_000_000, done("slept"), { signal: request.signal }).catch((error) => {
          throw argument ? withoutText : error;
        });
      case "crash-without-text":
        throw withoutText;
      case "keep":
        kept.push(request);
        return done("kept");
      case "kept-beat":
        kept[0]?.heartbeat();
        return done("beaten");
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
        return request.holds(wouldDo(request) ?? "") ? done(argument) : stalePreview("no");
      case "print":
        console.log(argument);
        return done(`${process.env["ORGANISM_LISTENER"]} ${request.attempt} ${request.thread}`);
      case "string":
        return `<done xmlns="urn:test">${argument}</done>`;
      case "alive":
        return request.keepAlive(Promise.resolve(done("alive")));
      case "bytes":
        return done(Buffer.from("abc") as unknown as string);
      case "generator":
        return done([1].values() as unknown as string);
      case "dict":
        return done({ unit: "kg" } as unknown as string);
      case "list-attribute":
        return element(`${NS}done`, [], { n: [1] as unknown as string });
      case "null-child":
        return element(`${NS}done`, [null as unknown as string]);
      case "one-child":
        return element(`${NS}done`, done("inner"));
      case "pass-on":
        return element(`${NS}done`, request.payload.elements);
      case "spawn-number":
        return spawn(Object.create(null) as Payload);
      case "foreign-element":
        return new Map() as unknown as Payload;
      case "foreign-child":
      case "empty-map-child":
        return element(`${NS}done`, new Map() as unknown as string);
      case "empty-bytes":
        return Buffer.from("") as unknown as Payload;
      case "empty-bytes-child":
        return element(`${NS}done`, Buffer.from("") as unknown as string);
      case "empty-set":
        return [new Set() as unknown as Payload];
      case "number":
        return new Element(`${NS}done`, new Map(), [5 as unknown as string]);
      case "number-attribute":
        return new Element(`${NS}done`, new Map([["n", 5 as unknown as string]]));
      case "deep":
        return count("20000").reduce((nested) => element(`${NS}done`, nested), done("deep"));
      case "infinite":
        return [Infinity, -Infinity, NaN].map(done);
      case "values": {
        const attributes = { none: undefined, yes: true, small: 5e-7, large: 1.25e22, negative: -1.5e-8 };
        const options = { label: null as unknown as string, money: 5e-7, bound: true };
        return [element(`${NS}done`, false, attributes), spawn(done(1e22), options)];
      }
      case "control":
        return done("\0");
      case "huge":
        return done("x".repeat(17 * 2 ** 20));
      default:
        throw new Error(word);
    }
  })
  .serve();
