"""Results that earlier batches of one function have, on disk, because they may be millions."""

import json
import tempfile

from ._gateway import on_disk
from ._keys import KeyTable

# How many of the newest batches are searched.
SEARCHED_MAX = 1_000
OPEN = ("validating", "in_progress", "finalizing")


class Earlier:
    """The lines with results, by key. `running`: batches that have not ended, as [id, keys]."""

    def __init__(self, gateway, context):
        self.running = []
        self._disk, self._places = tempfile.TemporaryFile(), KeyTable("Q")
        # The newest result counts, so the newest batch comes first.
        for batch in gateway.batches(SEARCHED_MAX):
            if (batch.get("metadata") or {}).get("opentela_context") != context:
                continue
            if batch["status"] in OPEN:
                self.running.append((batch["id"], [line["custom_id"] for line in gateway.lines(batch["input_file_id"])]))
            elif batch.get("output_file_id"):
                self._keep(gateway.lines(batch["output_file_id"], may_lack=True))

    def _keep(self, lines):
        for line in lines:
            key = line.get("custom_id")
            if type(key) is str and self._places.get(key) is None:
                self._places[key] = self._disk.tell()
                on_disk(tempfile.gettempdir(), lambda: self._disk.write(json.dumps(line).encode() + b"\n"))

    def line(self, key):
        """The line with the result of this key; None: there is none."""
        place = self._places.get(key)
        if place is None:
            return None
        self._disk.seek(place)
        line = json.loads(self._disk.readline())
        return line if line["custom_id"] == key else None
