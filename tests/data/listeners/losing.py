#!/usr/bin/env -S python3 -S
"""The listener of obedient.py. Its client for NATS loses the first cancellation of a reconnection, as
asyncio.wait_for of Python 3.11 does if a connection is refused in the same moment."""
import asyncio
import runpy
from pathlib import Path

from nats.aio.client import Client

connect = Client._connect_to_server
lost = []


async def connect_and_lose(client, server):
    try:
        await connect(client, server)
    except OSError as refused:
        if lost:
            raise
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.append(True)
            raise refused from None


Client._connect_to_server = connect_and_lose
runpy.run_path(str(Path(__file__).with_name("obedient.py")), run_name="__main__")
if not lost:
    raise SystemExit("the client has lost no cancellation")
