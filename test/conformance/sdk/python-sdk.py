"""Drives the Python openai SDK through the gateway. Arguments: base URL, key, model. Prints one JSON object."""
import json
import sys

import openai

base, key, model = sys.argv[1:]
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0)
user = [{"role": "user", "content": "Say something."}]
out = {}

whole = client.chat.completions.create(messages=user, model=model, max_tokens=5)
out["chat"] = [whole.choices[0].message.content, whole.usage.completion_tokens]

chunks = list(client.chat.completions.create(messages=user, model=model, max_tokens=5, stream=True))
out["stream"] = ["".join(c.choices[0].delta.content or "" for c in chunks), [c.usage is None for c in chunks].count(False)]

asked = list(
    client.chat.completions.create(messages=user, model=model, max_tokens=5, stream=True, stream_options={"include_usage": True})
)
out["usage"] = [c.usage.completion_tokens for c in asked if c.usage]

tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
call = client.chat.completions.create(messages=user, model=model, tools=[tool]).choices[0].message.tool_calls[0]
out["tool"] = [call.function.name, json.loads(call.function.arguments)]

out["embeddings"] = [len(e.embedding) for e in client.embeddings.create(model=model, input=["a", "b"]).data]
out["responses"] = client.responses.create(model=model, input="x", max_output_tokens=3).output_text
events = list(client.responses.create(model=model, input="x", max_output_tokens=3, stream=True))
out["events"] = [sum(e.type == "response.output_text.delta" for e in events), events[-1].type]
out["models"] = [[m.id for m in client.models.list()], client.models.retrieve(model).id]


def error(call):
    try:
        call()
    except openai.APIError as caught:
        return [type(caught).__name__, getattr(caught, "code", None)]
    return None


def drain(**extra):
    for _ in client.chat.completions.create(messages=user, model=model, stream=True, extra_body=extra):
        pass


out["not found"] = error(lambda: client.chat.completions.create(messages=user, model="nobody/serves-this"))
wrong = openai.OpenAI(base_url=base, api_key="sk-wrong", max_retries=0)
out["unauthorized"] = error(lambda: wrong.chat.completions.create(messages=user, model=model))
out["bad request"] = error(lambda: client.chat.completions.create(messages=user, model=model, extra_body={"stand_in": {"status": 400}}))[0]
out["broken stream"] = error(lambda: drain(stand_in={"fault": "reset", "afterTokens": 3, "tokens": 30}))[1]

# Disconnects mid-stream, as `break` does.
stream = client.chat.completions.create(
    messages=user, model=model, stream=True, extra_body={"stand_in": {"tokens": 5000, "tokensPerSecond": 50, "id": "python-left"}}
)
seen = 0
for _ in stream:
    seen += 1
    if seen == 5:
        break
stream.close()
out["left after"] = seen
print(json.dumps(out))
