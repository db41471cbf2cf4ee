"""Which model, with which prompt, knows whether evidence supports a claim? Accuracy as a table.

    pip install openai
    export OPENAI_BASE_URL=https://gateway.example.org/v1 OPENAI_API_KEY=sk-otela-...
    python claims.py --models Qwen/Qwen3-8B,swiss-ai/Apertus-8B-Instruct claims.csv
"""
import argparse
import csv
import io
import itertools
import json
import time

import openai

LABELS = ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")
ASK = "Answer SUPPORTED, REFUTED or NOT ENOUGH INFO."
TEMPLATES = {
    "plain": "Does the evidence support the claim? {ask}\n\nEvidence: {evidence}\nClaim: {claim}",
    "fact-checker": "You check facts for a newspaper, and know nothing but the evidence. {ask}\n\nEvidence: {evidence}\nClaim: {claim}",
    "reason": "Think about the evidence and the claim in one sentence. {ask} Nothing follows it.\n\nEvidence: {evidence}\nClaim: {claim}",
}
ENDPOINT = "/v1/chat/completions"
LINES_MAX = 50_000


def control_group(claims, share):
    """Claims with the evidence of another claim. A model that does not read the evidence is wrong about most of them."""
    count = max(1, round(len(claims) * share)) if share > 0 else 0
    others = claims[1:] + claims[:1]
    return [(claim, "NOT ENOUGH INFO", other[2]) for (claim, _, _), other in zip(claims[:count], others)]


def lines_of(model, claims):
    """One request a line. Lines with the same template are neighbors: engines keep what prompts share."""
    for name, template in TEMPLATES.items():
        for number, (claim, _, evidence) in enumerate(claims):
            prompt = template.format(claim=claim, evidence=evidence, ask=ASK)
            body = {"model": model, "max_tokens": 200, "messages": [{"role": "user", "content": prompt}]}
            yield json.dumps({"custom_id": f"{name}/{number}", "method": "POST", "url": ENDPOINT, "body": body})


def batches_of(client, model, claims, most):
    """All lines of a model: a batch has at most 50,000. They run at once."""
    lines = lines_of(model, claims)
    while part := list(itertools.islice(lines, most)):
        file = client.files.create(file=("claims.jsonl", io.BytesIO("\n".join(part).encode())), purpose="batch")
        yield client.batches.create(
            input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h", metadata={"study": "claims", "model": model}
        ).id


def label_in(text):
    """The label that the answer names last; None if it names none."""
    found = [(text.upper().rfind(label), label) for label in LABELS]
    return max(found)[1] if max(found)[0] >= 0 else None


def right_answers(output, claims):
    """(template, number of the claim) of each line whose answer is the label."""
    for line in map(json.loads, output.splitlines()):
        name, number = line["custom_id"].rsplit("/", 1)
        answer = line["response"]["body"]["choices"][0]["message"]["content"]
        if label_in(answer or "") == claims[int(number)][1]:
            yield name, int(number)


def result_of(client, batch):
    """The output of a batch, or None while it runs."""
    batch = client.batches.retrieve(batch)
    if batch.status == "failed":
        raise SystemExit(f"{batch.metadata['model']}: {batch.errors.data[0].message}")
    if batch.status not in ("completed", "expired", "cancelled"):
        return None
    return client.files.content(batch.output_file_id).text if batch.output_file_id else ""


def table(right, models, count, control):
    """By model: the share of right answers with each template, and in the control group. Lines without an answer are wrong."""
    print("| model | " + " | ".join(TEMPLATES) + " | control |")
    print("| --- |" + " --- |" * (len(TEMPLATES) + 1))
    for model in models:
        shares = [sum(1 for name, number in right[model] if name == one and number < count) / count for one in TEMPLATES]
        controls = sum(1 for _, number in right[model] if number >= count) / (control * len(TEMPLATES)) if control else 0
        print(f"| {model} | " + " | ".join(f"{share:.0%}" for share in (*shares, controls)) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", required=True, help="names with commas between them")
    parser.add_argument("--control", type=float, default=0.03, help="size of the control group, as a share of the claims; at least one claim, unless it is 0")
    parser.add_argument("--lines", type=int, default=LINES_MAX, help="lines of one batch")
    parser.add_argument("--every", type=float, default=5, help="seconds between two looks")
    parser.add_argument("claims", help="CSV with the columns claim, label (SUPPORTED, REFUTED, NOT ENOUGH INFO) and evidence")
    args = parser.parse_args()
    with open(args.claims, newline="") as file:
        claims = [(row["claim"], row["label"].strip().upper(), row["evidence"]) for row in csv.DictReader(file)]
    models = args.models.split(",")
    control = control_group(claims, args.control)

    client = openai.OpenAI()
    running = {batch: model for model in models for batch in batches_of(client, model, claims + control, args.lines)}
    right = {model: set() for model in models}
    while running:
        for batch, model in list(running.items()):
            output = result_of(client, batch)
            if output is not None:
                right[model].update(right_answers(output, claims + control))
                del running[batch]
        if running:
            time.sleep(args.every)
    table(right, models, len(claims), len(control))


if __name__ == "__main__":
    main()
