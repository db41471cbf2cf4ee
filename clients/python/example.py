"""A small version of the paper's fact verification: a table in place of a model, which stays in memory between calls."""

import re

import opentela


def load(capitals="Paris: France, Rome: Italy, Bern: Switzerland"):
    return dict(one.lower().split(": ") for one in capitals.split(", "))


@opentela.function(load=load)
def verify(capitals, claim):
    found = re.search(r"(\w+) is the capital of (\w+)", claim.lower())
    return "SUPPORTED" if found and capitals.get(found[1]) == found[2] else "REFUTED"


if __name__ == "__main__":
    with opentela.Client() as client:
        print(list(client.map(verify, ["Paris is the capital of France.", "Rome is the capital of Spain."])))
