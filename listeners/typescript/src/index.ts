/**
 * The TypeScript kit for listeners of an organism.
 *
 *     import { element, Listener } from "organism-listener";
 *
 *     const NS = "{urn:example:calculator}";
 *
 *     await new Listener()
 *       .accepts(NS + "add", (request) => {
 *         const numbers = request.payload.all("n").map((n) => Number(n.text));
 *         return element(NS + "sum", numbers.reduce((sum, n) => sum + n, 0));
 *       })
 *       .serve();
 *
 * docs/PROTOCOL.md describes the frames, and what the comments of this kit cite.
 */

export { type Answer, type Payload, sendToThread, spawn, stalePreview, type ThreadOptions, wait } from "./answer.js";
export { type Handler, Listener, type PreviewHandler, type PreviewText } from "./listener.js";
export { Message, type MessageKind, Request, ThreadResult } from "./message.js";
export { type Content, Element, element, parse, type Scalar } from "./xml.js";
