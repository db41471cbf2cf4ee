"""A small version of the paper's fact verification: a model is loaded once per node and checks claims."""

import re

import opentela


def load():
    """A table in this example; in practice a model. It stays on the node between calls."""
    return {"paris": "france", "rome": "italy", "bern": "switzerland"}


@opentela.function(load=load)
def verify(capitals, claims):
    found = (re.search(r"(\w+) is the capital of (\w+)", claim.lower()) for claim in claims)
    return ["SUPPORTED" if one and capitals.get(one[1]) == one[2] else "REFUTED" for one in found]


if __name__ == "__main__":
    print(verify.map(["Paris is the capital of France.", "Rome is the capital of Spain."]))
