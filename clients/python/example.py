"""The paper's fact verification, small: a model that is loaded once on each node, and claims that are checked by it."""

import re

import opentela


def load():
    """Here a table; in earnest a model: it stays on the node from one call to the next."""
    return {"paris": "france", "rome": "italy", "bern": "switzerland"}


@opentela.function(load=load)
def verify(capitals, claims):
    found = (re.search(r"(\w+) is the capital of (\w+)", claim.lower()) for claim in claims)
    return ["SUPPORTED" if one and capitals.get(one[1]) == one[2] else "REFUTED" for one in found]


if __name__ == "__main__":
    print(verify.map(["Paris is the capital of France.", "Rome is the capital of Spain."]))
