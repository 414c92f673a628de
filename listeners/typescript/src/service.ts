/** The service information of a listener (ADR-32), so that `nats micro` lists listeners. */

import { randomBytes } from "node:crypto";

import { VERSION } from "./version.js";

export type ServiceVerb = "PING" | "INFO" | "STATS";

const VERBS: readonly ServiceVerb[] = ["PING", "INFO", "STATS"];

export class Service {
  readonly #id = randomBytes(8).toString("hex");
  readonly #started = new Date().toISOString();
  #requests = 0;
  #errors = 0;
  #lastError = "";
  #nanoseconds = 0;

  constructor(
    readonly organism: string,
    readonly listener: string,
    readonly subject: string,
    readonly lease: number,
  ) {}

  subjects(): [verb: ServiceVerb, subject: string][] {
    const rests = ["", `.${this.listener}`, `.${this.listener}.${this.#id}`];
    return VERBS.flatMap((verb) => rests.map((rest): [ServiceVerb, string] => [verb, `$SRV.${verb}${rest}`]));
  }

  count(milliseconds: number, failure: string | undefined): void {
    this.#requests += 1;
    this.#nanoseconds += Math.round(milliseconds * 1e6);
    if (failure !== undefined) {
      this.#errors += 1;
      this.#lastError = failure;
    }
  }

  answer(verb: ServiceVerb): object {
    const metadata = { organism: this.organism, lease: String(this.lease), kit: "typescript" };
    const type = `io.nats.micro.v1.${verb.toLowerCase()}_response`;
    const about = { type, name: this.listener, id: this.#id, version: VERSION, metadata };
    const endpoint = { name: "deliveries", subject: this.subject, queue_group: this.listener };
    if (verb === "PING") {
      return about;
    }
    if (verb === "INFO") {
      return { ...about, description: "a listener of an organism", endpoints: [endpoint] };
    }

    const counts = {
      num_requests: this.#requests,
      num_errors: this.#errors,
      last_error: this.#lastError,
      processing_time: this.#nanoseconds,
      average_processing_time: Math.floor(this.#nanoseconds / Math.max(this.#requests, 1)),
    };
    return { ...about, started: this.#started, endpoints: [{ ...endpoint, ...counts }] };
  }
}
