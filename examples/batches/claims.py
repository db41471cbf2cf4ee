"""Which model, with which prompt, tells true claims from false ones? One batch per model, accuracy as a table.

    pip install openai
    export OPENAI_BASE_URL=https://gateway.example.org/v1 OPENAI_API_KEY=sk-otela-...
    python claims.py --models Qwen/Qwen3-8B,swiss-ai/Apertus-8B-Instruct claims.csv
"""
import argparse
import csv
import io
import json
import time

import openai

TEMPLATES = {
    "plain": "Is this claim true? Answer TRUE or FALSE.\n\nClaim: {claim}",
    "fact-checker": "You check facts for a newspaper. Say TRUE if the claim holds, FALSE if not, and nothing else.\n\nClaim: {claim}",
    "reason": "Think about the claim in one sentence, then write TRUE or FALSE as the last word.\n\nClaim: {claim}",
}
ENDPOINT = "/v1/chat/completions"


def lines_of(model, claims):
    """One request a line. Lines with the same template lie next to each other: engines keep what prompts share."""
    for name, template in TEMPLATES.items():
        for number, (claim, _) in enumerate(claims):
            prompt = template.format(claim=claim)
            body = {"model": model, "max_tokens": 200, "messages": [{"role": "user", "content": prompt}]}
            yield json.dumps({"custom_id": f"{name}/{number}", "method": "POST", "url": ENDPOINT, "body": body})


def label_in(text):
    """TRUE or FALSE, whichever the answer says last; None where it says neither."""
    found = [(text.upper().rfind(label), label) for label in ("TRUE", "FALSE")]
    return max(found)[1] if max(found)[0] >= 0 else None


def accuracy(output, claims):
    """By template: the share of claims whose answer is their label. Lines without an answer count as wrong."""
    right = dict.fromkeys(TEMPLATES, 0)
    for line in map(json.loads, output.splitlines()):
        name, number = line["custom_id"].rsplit("/", 1)
        answer = line["response"]["body"]["choices"][0]["message"]["content"]
        right[name] += label_in(answer or "") == claims[int(number)][1]
    return {name: count / len(claims) for name, count in right.items()}


def table(rows):
    names = list(TEMPLATES)
    print("| model | " + " | ".join(names) + " |")
    print("| --- |" + " --- |" * len(names))
    for model, shares in rows.items():
        print(f"| {model} | " + " | ".join(f"{shares[name]:.0%}" for name in names) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", required=True, help="names with commas between them")
    parser.add_argument("--every", type=float, default=5, help="seconds between two looks")
    parser.add_argument("claims", help="CSV with the columns claim and label (TRUE or FALSE)")
    args = parser.parse_args()
    with open(args.claims, newline="") as file:
        claims = [(row["claim"], row["label"].strip().upper()) for row in csv.DictReader(file)]

    client = openai.OpenAI()
    batches = {}
    for model in args.models.split(","):
        content = io.BytesIO("\n".join(lines_of(model, claims)).encode())
        file = client.files.create(file=("claims.jsonl", content), purpose="batch")
        # All models run at once, each on the nodes that have it.
        batches[model] = client.batches.create(
            input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h", metadata={"study": "claims"}
        )

    rows = {}
    while batches:
        for model, batch in list(batches.items()):
            batch = client.batches.retrieve(batch.id)
            if batch.status == "failed":
                raise SystemExit(f"{model}: {batch.errors.data[0].message}")
            if batch.status in ("completed", "expired", "cancelled"):
                output = client.files.content(batch.output_file_id).text if batch.output_file_id else ""
                rows[model] = accuracy(output, claims)
                del batches[model]
        if batches:
            time.sleep(args.every)
    table({model: rows[model] for model in args.models.split(",")})


if __name__ == "__main__":
    main()
