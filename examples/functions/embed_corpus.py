"""Embeds a corpus with one document a line: python embed_corpus.py CORPUS VECTORS [MODEL]"""

import json
import sys

import opentela
from sentence_transformers import SentenceTransformer


def load(name):
    return SentenceTransformer(name)


@opentela.function(load=load, batch_size=100)
def embed(model, documents):
    return [vector.tolist() for vector in model.encode(documents, normalize_embeddings=True)]


def main(corpus, vectors, name="sentence-transformers/all-MiniLM-L6-v2"):
    with open(corpus) as file:
        documents = [line.strip() for line in file]
    with open(vectors, "w") as file:
        for vector in embed.with_context(name=name).map(documents):
            file.write(json.dumps(vector) + "\n")
    print(f"{len(documents)} documents")


if __name__ == "__main__":
    main(*sys.argv[1:])
