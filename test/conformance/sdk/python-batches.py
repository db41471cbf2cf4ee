"""A batch through the Python openai SDK. Arguments: base URL, key, model. Prints one JSON object."""
import io
import json
import sys
import time

import openai

base, key, model = sys.argv[1:]
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0)
endpoint = "/v1/chat/completions"
lines = "\n".join(
    json.dumps(
        {
            "custom_id": f"line-{i}",
            "method": "POST",
            "url": endpoint,
            "body": {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": str(i)}]},
        }
    )
    for i in range(120)
).encode()


def ended(batch):
    deadline = time.time() + 40
    while batch.status not in ("completed", "failed", "expired", "cancelled") and time.time() < deadline:
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    return batch


def run(file_id):
    batch = ended(client.batches.create(input_file_id=file_id, endpoint=endpoint, completion_window="24h"))
    text = client.files.content(batch.output_file_id).text
    return [batch.status, batch.request_counts.completed, len({json.loads(one)["custom_id"] for one in text.splitlines()})]


whole = client.files.create(file=("in.jsonl", io.BytesIO(lines)), purpose="batch")
chunked = client.uploads.upload_file_chunked(
    file=lines, filename="parts.jsonl", bytes=len(lines), mime_type="application/jsonl", purpose="batch", part_size=8000
)
out = {
    "file": run(client.files.wait_for_processing(whole.id).id),
    "chunked": run(chunked.file.id),
    "listed": sum(1 for _ in client.batches.list(limit=1)),
}
try:
    client.batches.cancel("batch_none")
except openai.NotFoundError as error:
    out["unknown"] = error.status_code
print(json.dumps(out))
