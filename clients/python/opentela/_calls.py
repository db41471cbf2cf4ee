"""Calls, and those that need results of other calls."""

import hashlib
from concurrent.futures import Future

from . import _files, _values
from ._errors import FunctionError
from ._served import Served

# The responses of served models.
SERVED_OBJECTS = ("chat.completion", "list")
# Futures are found in arguments, and in lists, tuples and dicts in them up to this depth. The arguments themselves are depth 1.
FUTURES_DEPTH = 3
# Batches whose results one batch may need, as at the gateway, and results that one line may need.
AFTER_MAX = 16
NEEDS_MAX = 10_000
# What stands for a result in the input of a line: here, and after the gateway has put the result in its place.
REFERENCE, VALUE = "$result", _files.VALUE


class Call:
    """One input. `bundle`: None if the function was sent by another process. `model`: how lines name the function.

    `key` and `text` are None while the script holds the call, because it waits for other calls.
    `template`: for a call that the gateway may hold. `place`: its batch, and the number of its line there, once it is sent.
    `is_held`: the gateway does not hold it, so the script waits for all results that it needs.
    """

    __slots__ = ("bundle", "model", "key", "text", "run", "future", "files", "template", "place", "is_held")

    def __init__(self, bundle, key, text, run, model=None, files=(), template=None):
        self.template, self.place, self.is_held = template, None, False
        self.bundle, self.model, self.key, self.text, self.run, self.files = bundle, model, key, text, run, files
        self.future = Future()
        self.future.run_id = run
        self.future.function = bundle.name if bundle else model
        self.future.call = self

    @property
    def group(self):
        return self.bundle.context if self.bundle else self.model, self.run

    def settle(self, line, trust, gateway):
        """Takes the line of the result."""
        if self.future.done():
            return
        body = (line.get("response") or {}).get("body") or {}
        try:
            if isinstance(self.bundle, Served) and not line.get("error"):
                self.future.set_result(self.bundle.result(body))
                return
            if self.bundle is None and body.get("object") in SERVED_OBJECTS:
                self.future.set_result(body)
                return
            if "output" not in body:
                error = line.get("error") or body.get("error") or {}
                raise FunctionError(error.get("message") or "the gateway returned no result for this input", error.get("code"))
            modules = self.bundle.modules if self.bundle else ()
            result = _values.decode_result(body["output"], modules, trust)
            self.future.set_result(_files.received(result, body["files"], gateway) if "files" in body else result)
        except FunctionError as error:
            self.future.set_exception(error)

    @property
    def pending(self):
        """The calls without a result that this one needs."""
        return [one for one in self.template.needs if not one.future.done()] if self.template else []

    def is_sendable(self, holds):
        """True if the call can be sent, or has failed. `holds`: the gateway holds calls that need results."""
        pending = self.pending
        if not pending or any(one.future.done() and not has_result(one.future) for one in self.template.needs):
            return True
        batches = {one.place and one.place[0] for one in pending}
        return holds and not self.is_held and None not in batches and len(batches) <= AFTER_MAX and self.template.fits

    def written(self, reference):
        """The text of the line's input or body, and the member `after`. `reference`: names the result of a call."""
        return (self.text, []) if self.template is None else self.template.written(self, reference)

    def again(self):
        """The same call, to be sent again."""
        return Call(self.bundle, self.key, self.text, self.run, self.model, self.files, self.template)

    def fail(self, error):
        if not self.future.done():
            self.future.set_exception(error)


def input_key(text, occurrence):
    """The `custom_id` of an input, by which a later run finds its result. Equal inputs of one run are numbered."""
    key = hashlib.sha256(text.encode()).hexdigest()[:40]
    return key if occurrence == 0 else f"{key}-{occurrence}"


def has_result(future):
    return not future.cancelled() and future.exception() is None


def futures_in(value, depth=0):
    if isinstance(value, Future):
        return [value]
    if depth > FUTURES_DEPTH or type(value) not in (list, tuple, dict):
        return []
    items = value.values() if type(value) is dict else value
    return [one for item in items for one in futures_in(item, depth + 1)]


def filled(value, result_of, depth=1):
    """The value with `result_of(future)` in place of each Future."""
    if isinstance(value, Future):
        return result_of(value)
    if depth > FUTURES_DEPTH or type(value) not in (list, tuple, dict):
        return value
    if type(value) is dict:
        return {key: filled(item, result_of, depth + 1) for key, item in value.items()}
    return type(value)(filled(item, result_of, depth + 1) for item in value)


def check_dependency(name, future):
    """@raises FunctionError that names the call that failed first"""
    error = None if future.cancelled() else future.exception()
    if future.cancelled() or error is not None:
        raise FunctionError.of_dependency(name, getattr(future, "function", "another executor"), error)


class Template:
    """The arguments of a call that needs results, for the gateway to put these in.

    shape: the line's input, or the body for a served model, with Futures in it. after: Futures whose results it does not get.
    encode: makes the text and the files of the line, when all results are there. files: those in the arguments.
    id_of: returns the id of a File at the gateway.
    """

    def __init__(self, shape, after, encode, files, is_function, id_of):
        self.shape, self.after, self.encode, self.files, self.is_function = shape, list(after), encode, list(files), is_function
        self.id_of = id_of
        self.needs = list(dict.fromkeys(future.call for future in (*futures_in(shape), *self.after)))

    @classmethod
    def of(cls, shape, after, encode, is_ours, files=(), is_function=True, id_of=None):
        """None: the script must hold the call, because the gateway cannot write its line."""
        futures = [*futures_in(shape), *after]
        if len(futures) > NEEDS_MAX or not all(is_ours(one) and one.call.key for one in futures):
            return None
        plain = filled(shape, lambda _: None, 0)
        # Values that JSON does not keep are pickled with all arguments. Names of the gateway's marks would be taken for marks.
        if not _values.is_exact(plain) or any(name in _values.to_text(plain) for name in (REFERENCE, VALUE)):
            return None
        return cls(shape, after, encode, files, is_function, id_of)

    def identity(self):
        """Text that is equal for the same call of another process: it names the calls in place of their results."""
        names = [[one.call.group[0], one.call.key] for one in self.after]
        return _values.to_text([filled(self.shape, lambda one: {REFERENCE: [one.call.group[0], one.call.key]}, 0), names])

    @property
    def fits(self):
        """False if a result that is there is no text, and a served model needs one."""
        return self.is_function or all(isinstance(one.result(), str) for one in futures_in(self.shape) if one.done())

    def written(self, call, reference):
        for one in self.needs:
            if one.future.done():
                check_dependency(call.future.function, one.future)
        if not call.pending:
            call.text, call.files = self.encode()
            return call.text, []

        ids = set(self.files)

        def part(future):
            if not future.done():
                return {REFERENCE: reference(future.call)}
            if not self.is_function:
                return future.result()
            value, files = _files.numbered(future.result(), self.id_of)
            ids.update(id for id, _ in files)
            return {VALUE: _values.encode(value), **({"files": files} if files else {})}

        text = _values.to_text(filled(self.shape, part, 0))
        call.files = sorted(ids)
        return text, [reference(one.call) for one in self.after if not one.done()]
