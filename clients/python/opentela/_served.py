"""A model that the gateway serves, as a step between functions."""

import hashlib
import json

from ._errors import FunctionError, OtelaError

# For each endpoint: the member of the body that a plain text becomes, and the result of a response.
ENDPOINTS = {
    "chat/completions": (lambda text: {"messages": [{"role": "user", "content": text}]}, lambda body: body["choices"][0]["message"]["content"]),
    "embeddings": (lambda text: {"input": text}, lambda body: body["data"][0]["embedding"]),
}


class Served:
    """What `opentela.served` returns. It takes the place of a function in submit() and map()."""

    modules = ()

    def __init__(self, model, endpoint, body):
        if endpoint not in ENDPOINTS:
            raise OtelaError(f"endpoint={endpoint!r} must be one of {', '.join(ENDPOINTS)}")
        self.name, self.endpoint, self.body = model, f"/v1/{endpoint}", {**body, "model": model}
        self._members, self._result = ENDPOINTS[endpoint]
        whole = json.dumps([self.endpoint, self.body], sort_keys=True)
        self.context = hashlib.sha256(whole.encode()).hexdigest()

    def text(self, args, kwargs):
        """The body of the line, as JSON. The argument: a text, or the members of the body that belong to this input."""
        if kwargs or len(args) != 1 or not isinstance(args[0], (str, dict)):
            raise TypeError(f"{self.name} takes one argument: a text, or a dict with members of the request")
        members = args[0] if isinstance(args[0], dict) else self._members(args[0])
        return json.dumps({**self.body, **members}, allow_nan=False, separators=(",", ":"))

    def shape(self, args, kwargs):
        """The body of the line, with Futures in it in place of texts."""
        if kwargs or len(args) != 1:
            raise TypeError(f"{self.name} takes one argument: a text, or a dict with members of the request")
        return {**self.body, **(args[0] if isinstance(args[0], dict) else self._members(args[0]))}

    def result(self, body):
        try:
            return self._result(body)
        except (KeyError, IndexError, TypeError):
            error = body.get("error") or {} if isinstance(body, dict) else {}
            raise FunctionError(error.get("message") or f"{self.name} returned no result for this input", error.get("code")) from None


def served(model, endpoint="chat/completions", **body):
    """A model that the gateway serves. Inputs are texts, and results are texts, or the lists of numbers of `embeddings`.

    body: further members of each request, as max_tokens=100.
    """
    return Served(model, endpoint, body)
