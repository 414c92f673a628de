#!/usr/bin/env python3
"""A listener with a stock client for NATS and no kit. Its argument names its mistake."""
import asyncio
import os
import sys
from xml.sax.saxutils import quoteattr

import nats

MANNER = sys.argv[1]
NS = "https://xml-pipeline.org/ns/envelope/v1"


async def main():
    client = await nats.connect(os.environ["ORGANISM_BUS_URL"])
    organism, listener = os.environ["ORGANISM_NAME"], os.environ["ORGANISM_LISTENER"]

    answered = set()

    async def note(answer):
        if not answer.headers:
            answered.add(answer.subject)

    async def say(delivery):
        said = '<said xmlns="urn:example:talk"/>'
        if MANNER == "other-group-named":
            call = quoteattr(delivery.headers["Organism-Call"])
            attempt = quoteattr(delivery.headers["Organism-Attempt"])
            said = f'<e:answer xmlns:e="{NS}" call={call} attempt={attempt}>{said}</e:answer>'
        if MANNER == "other-group-heartbeats":
            await client.publish(delivery.reply, headers={"Organism-Heartbeat": "1"})
            # After two round trips, an answer of another replica has mostly arrived.
            await client.flush()
            await client.flush()
            if delivery.reply in answered:
                return
        for _ in range(2 if MANNER == "twice" else 1):
            await delivery.respond(said.encode())

    group = "workers" if MANNER.startswith("other-group") else listener
    await client.subscribe(f"organism.{organism}.re.{listener}.>", cb=note)
    await client.subscribe(f"organism.{organism}.to.{listener}", queue=group, cb=say)
    await asyncio.Event().wait()


asyncio.run(main())
