"""Runs your own Python functions on the idle GPUs of an OpenTela network.

    import opentela

    def load(model="FacebookAI/roberta-large-mnli"):     # once per process; its result stays in memory
        from transformers import pipeline
        return pipeline("text-classification", model=model)

    @opentela.function(load=load, requirements=["transformers", "torch"], gpus=1)
    def verify(model, claim):
        return model(claim)[0]["label"]

    if __name__ == "__main__":
        with opentela.Client() as client:
            for label in client.map(verify, open("claims.txt")):
                print(label)

OTELA_GATEWAY is the gateway's URL, OTELA_API_KEY the key. docs/functions.md has the rules.
"""

import importlib
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, Future, as_completed, wait
from typing import TYPE_CHECKING

from ._errors import FunctionError, OtelaError
from ._function import Function, function

if TYPE_CHECKING:
    from ._client import Client
    from ._client import Client as Executor
    from ._files import File
    from ._runs import Run
    from ._served import served
    from ._up import up

# Imported when they are used. A node needs none of them, and imports the library at the start of each process.
_LATER = {"Client": "_client", "Executor": "_client", "File": "_files", "Run": "_runs", "served": "_served", "up": "_up"}


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_LATER[name]}", __name__)
    return getattr(module, "Client" if name == "Executor" else name)


def __dir__():
    return sorted(__all__)

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "Client",
    "Executor",
    "File",
    "Function",
    "FunctionError",
    "Future",
    "OtelaError",
    "Run",
    "as_completed",
    "function",
    "served",
    "up",
    "wait",
]
