"""Embeds a corpus with one document a line: python embed_corpus.py CORPUS VECTORS [MODEL]"""

import json
import sys

from sentence_transformers import SentenceTransformer


def main(corpus, vectors, name="sentence-transformers/all-MiniLM-L6-v2"):
    model = SentenceTransformer(name)
    with open(corpus) as file:
        documents = [line.strip() for line in file]
    with open(vectors, "w") as file:
        for vector in model.encode(documents, normalize_embeddings=True):
            file.write(json.dumps(vector.tolist()) + "\n")
    print(f"{len(documents)} documents")


if __name__ == "__main__":
    main(*sys.argv[1:])
