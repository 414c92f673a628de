"""Reads an answer of each server with a provider's own library; a line of JSON for each."""

import json
import sys


def openai(url, key):
    from openai import APIError, APIStatusError, OpenAI

    read = {"text": "", "reasoning": "", "calls": [], "stop": None, "usage": None}
    client = OpenAI(base_url=url, api_key=key, max_retries=0)
    try:
        stream = client.chat.completions.create(
            model="m-1",
            messages=[{"role": "user", "content": "Hello."}],
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in stream:
            if chunk.usage:
                read["usage"] = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens]
            for choice in chunk.choices:
                read["text"] += choice.delta.content or ""
                read["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
                for call in choice.delta.tool_calls or []:
                    while len(read["calls"]) <= call.index:
                        read["calls"].append(["", "", ""])
                    into = read["calls"][call.index]
                    into[0] += call.id or ""
                    into[1] += call.function.name or ""
                    into[2] += call.function.arguments or ""
                read["stop"] = choice.finish_reason or read["stop"]
    except APIStatusError as error:
        return {"status": error.status_code}
    except APIError:
        return {"error": True}
    return read


def anthropic(url, key):
    from anthropic import APIError, APIStatusError, Anthropic

    client = Anthropic(base_url=url.removesuffix("/v1"), api_key=key, max_retries=0)
    try:
        with client.messages.stream(
            model="m-1",
            max_tokens=99,
            messages=[{"role": "user", "content": "Hello."}],
        ) as stream:
            message = stream.get_final_message()
    except APIStatusError as error:
        # An error in the middle of a stream comes with the status the stream began with.
        return {"error": True} if error.status_code == 200 else {"status": error.status_code}
    except APIError:
        return {"error": True}
    usage = message.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    of = lambda kind: [block for block in message.content if block.type == kind]
    return {
        "text": "".join(block.text for block in of("text")),
        "reasoning": "".join(block.thinking for block in of("thinking")),
        "signature": "".join(block.signature for block in of("thinking")),
        "calls": [[block.id, block.name, json.dumps(block.input)] for block in of("tool_use")],
        "stop": message.stop_reason,
        "usage": [usage.input_tokens + cached, usage.output_tokens],
    }


library, key, *urls = sys.argv[1:]
for url in urls:
    print(json.dumps({"openai": openai, "anthropic": anthropic}[library](url, key)))
