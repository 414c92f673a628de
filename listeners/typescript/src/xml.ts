/**
 * Elements of payloads: a parser without DTDs and entities of its own, and a writer whose output can be
 * recorded on its own.
 */

import { SaxesParser } from "saxes";

const XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace";
const ENVELOPE_NAMESPACE = "https://xml-pipeline.org/ns/envelope/v1";
const XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type";
/** A prefix within a value, such as in `p:circle`. The search begins at the beginnings of words alone. */
const PREFIX = /(?<![\p{L}\p{M}\p{N}_.-])([\p{L}\p{M}\p{N}_.-]+):/gu;
/** What XML 1.0 cannot contain: control characters, two that are no characters, and half surrogate pairs. */
const NOT_XML = /[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/u;

/** A value that is written as text. */
export type Scalar = string | number | bigint | boolean;
/** What an element contains: text, an element, or several of them. */
export type Content = Scalar | Element | readonly (Scalar | Element)[];

/** An XML element. Names are `{namespace}local`, or `local` where there is no namespace. */
export class Element {
  constructor(
    readonly name: string,
    readonly attributes: ReadonlyMap<string, string> = new Map(),
    readonly children: readonly (Element | string)[] = [],
    /** Namespaces of the prefixes in the values of a parsed element. That of `""` is the default namespace. */
    readonly valueNamespaces: ReadonlyMap<string, string> = new Map(),
  ) {}

  get namespace(): string {
    return split(this.name)[0];
  }

  get local(): string {
    return split(this.name)[1];
  }

  /** The text directly within this element. */
  get text(): string {
    return this.children.filter((child) => typeof child === "string").join("");
  }

  /** The child elements. */
  get elements(): Element[] {
    return this.children.filter((child) => typeof child !== "string");
  }

  /** The child elements with this name. A name without namespace is taken in the namespace of this element first. */
  all(name: string): Element[] {
    const own = this.namespace && !name.startsWith("{") ? `{${this.namespace}}${name}` : name;
    const found = this.elements.filter((child) => child.name === own);
    return found.length > 0 ? found : this.elements.filter((child) => child.name === name);
  }

  /** The first child element with this name, found as in `all`. */
  child(name: string): Element | undefined {
    return this.all(name)[0];
  }

  /** The element as text that declares every namespace it uses. */
  toString(): string {
    return written(this, "");
  }
}

/**
 * The answer of a handler cannot be sent. A retry would repeat the effects of the handler, so the call ends
 * (docs/PROTOCOL.md, section 7).
 */
export class UnwritableAnswer extends Error {
  constructor(reason: string) {
    super(`the answer cannot be sent: ${reason}`);
  }
}

/** Creates an element. Attributes without a value are left out, as is content that is null. */
export function element(
  name: string,
  content: Content | null = [],
  attributes: Readonly<Record<string, Scalar | null | undefined>> = {},
): Element {
  const parts: readonly (Scalar | Element)[] = Array.isArray(content) ? content : content === null ? [] : [content];
  const place = `the content of element("${name}")`;
  const children = parts.map((part) => (part instanceof Element ? part : textOfScalar(part, place)));
  const values = new Map<string, string>();
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) {
      values.set(key, textOfScalar(value, `the attribute \`${key}\` of element("${name}")`));
    }
  }

  return new Element(name, values, children);
}

/**
 * A value as XML Schema writes it: a number without an exponent, and `INF` for an infinite one. Throws an
 * `UnwritableAnswer` for any other value, whose text would be one such as `[object Object]`.
 */
export function textOfScalar(value: Scalar, place: string): string {
  switch (typeof value) {
    case "string":
      return value;
    case "bigint":
    case "boolean":
      return String(value);
    case "number":
      return textOfNumber(value);
    default: {
      const type = value === null ? "null" : typeof value;
      throw new UnwritableAnswer(`${place} is of type ${type}: pass strings, numbers, booleans or elements`);
    }
  }
}

function textOfNumber(value: number): string {
  if (Math.abs(value) === Infinity) {
    return value < 0 ? "-INF" : "INF";
  }
  const text = String(value);
  const [, sign = "", whole = "", fraction = "", exponent] = /^(-?)(\d)(?:\.(\d+))?e([-+]\d+)$/.exec(text) ?? [];
  if (exponent === undefined) {
    return text;
  }
  // JavaScript writes an exponent of more than 20, or of less than -6.
  const digits = whole + fraction;
  const zeros = "0".repeat(Math.abs(Number(exponent)));
  return Number(exponent) < 0 ? `${sign}0.${zeros.slice(1)}${digits}` : sign + digits + zeros.slice(fraction.length);
}

/** Parses a text that holds one element. Throws where it is not well-formed, or declares a document type. */
export function parse(text: string): Element {
  const parser = new SaxesParser({ xmlns: true, position: false });
  const open: OpenElement[] = [];
  let root: Element | undefined;

  const refuse = (what: string) => {
    throw new Error(`${what} is not allowed`);
  };
  const append = (text: string) => open.at(-1)?.children.push(text);

  parser.on("error", (error) => {
    throw error;
  });
  parser.on("doctype", () => refuse("a document type"));
  parser.on("processinginstruction", () => refuse("a processing instruction"));
  parser.on("text", append);
  parser.on("cdata", append);
  parser.on("opentag", (tag) => {
    const attributes = new Map<string, string>();
    for (const { uri, local, prefix, value } of Object.values(tag.attributes)) {
      if (prefix !== "xmlns" && !(prefix === "" && local === "xmlns")) {
        attributes.set(joined(uri, local), value);
      }
    }
    const outer = open.at(-1)?.declared ?? new Map([["", ""]]);
    const own = Object.entries(tag.ns);
    const declared = own.length === 0 ? outer : new Map([...outer, ...own]);
    open.push({ name: joined(tag.uri, tag.local), attributes, children: [], declared });
  });
  parser.on("closetag", () => {
    const closed = closedElement(open.pop()!);
    const parent = open.at(-1);
    if (parent) {
      parent.children.push(closed);
    } else {
      root = closed;
    }
  });

  parser.write(text).close();
  if (!root) {
    throw new Error("there is no element");
  }
  return root;
}

/** An element before its end, and the namespaces of all prefixes in force. */
interface OpenElement {
  readonly name: string;
  readonly attributes: Map<string, string>;
  readonly children: (Element | string)[];
  readonly declared: ReadonlyMap<string, string>;
}

function closedElement({ name, attributes, children, declared }: OpenElement): Element {
  const texts = children.filter((child) => typeof child === "string");
  const values = [...attributes.values(), ...texts].filter((value) => value.includes(":"));
  const prefixes = new Set(values.flatMap((value) => Array.from(value.matchAll(PREFIX), ([, prefix]) => prefix!)));
  if (attributes.get(XSI_TYPE)?.includes(":") === false) {
    prefixes.add(""); // a type without a prefix is in the default namespace
  }

  const namespaces = new Map<string, string>();
  for (const prefix of prefixes) {
    const namespace = declared.get(prefix);
    if (namespace !== undefined && namespace !== ENVELOPE_NAMESPACE) {
      namespaces.set(prefix, namespace);
    }
  }
  return new Element(name, attributes, children, namespaces);
}

/** The first character that XML cannot contain, such as `U+0000`. NUL would end the frame that the text stands in. */
export function notXml(text: string): string | undefined {
  const code = NOT_XML.exec(text)?.[0].codePointAt(0);
  return code === undefined ? undefined : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Replaces the characters that XML cannot contain. */
export function replaced(text: string): string {
  return text.replace(new RegExp(NOT_XML, "gu"), "\uFFFD");
}

/** The text of an attribute, with its quotation marks. */
export function quoted(value: string): string {
  return `"${escaped(value).replaceAll('"', "&quot;").replaceAll("\t", "&#9;").replaceAll("\n", "&#10;")}"`;
}

/** A text between tags. */
export function escaped(text: string): string {
  const plain = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  return plain.replaceAll("\r", "&#13;");
}

function split(name: string): [namespace: string, local: string] {
  const end = name.lastIndexOf("}");
  return [name.slice(1, Math.max(end, 1)), name.slice(end + 1)];
}

function joined(namespace: string, local: string): string {
  return namespace ? `{${namespace}}${local}` : local;
}

function written(source: Element, outer: string): string {
  const [namespace, local] = split(source.name);
  const bound = new Map([["", namespace], ...source.valueNamespaces]);
  const inner = bound.get("")!;
  const tag = inner === namespace ? local : prefixed(namespace, local, bound);
  let attributes = "";
  for (const [name, value] of source.attributes) {
    const [own, attribute] = split(name);
    attributes += ` ${own ? prefixed(own, attribute, bound) : attribute}=${quoted(value)}`;
  }

  let start = tag;
  for (const [prefix, uri] of bound) {
    if (prefix) {
      start += ` xmlns:${prefix}=${quoted(uri)}`;
    } else if (uri !== outer) {
      start += ` xmlns=${quoted(uri)}`;
    }
  }
  start += attributes;

  const parts = source.children.map((child) => (typeof child === "string" ? escaped(child) : written(child, inner)));
  const content = parts.join("");
  return content ? `<${start}>${content}</${tag}>` : `<${start}/>`;
}

/** A name with a prefix of its own, which is added to the `bound` ones. */
function prefixed(namespace: string, local: string, bound: Map<string, string>): string {
  if (namespace === XML_NAMESPACE) {
    return `xml:${local}`;
  }
  let number = bound.size - 1;
  while (bound.has(`a${number}`)) {
    number += 1;
  }
  bound.set(`a${number}`, namespace);
  return `a${number}:${local}`;
}
