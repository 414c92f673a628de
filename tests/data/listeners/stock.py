#!/usr/bin/env python3
"""A listener with a stock client for NATS and no kit. Its argument names its mistake."""
import asyncio
import os
import sys

import nats

MANNER = sys.argv[1]


async def main():
    client = await nats.connect(os.environ["ORGANISM_BUS_URL"])
    organism, listener = os.environ["ORGANISM_NAME"], os.environ["ORGANISM_LISTENER"]

    async def say(delivery):
        for _ in range(2 if MANNER == "twice" else 1):
            await delivery.respond(b'<said xmlns="urn:example:talk"/>')

    group = "workers" if MANNER == "other-group" else listener
    await client.subscribe(f"organism.{organism}.to.{listener}", queue=group, cb=say)
    await asyncio.Event().wait()


asyncio.run(main())
