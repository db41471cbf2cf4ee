"""How calls become batches, with a gateway in memory."""

import gc
import json
import random
import threading
import unittest

import opentela
from opentela import _sender
from opentela._calls import Call
from opentela._errors import FunctionError, OtelaError
from opentela._keys import KeyTable


@opentela.function
def same(x):
    return x


class Memory:
    """A gateway that answers each line with its first argument, while `answers` is set."""

    def __init__(self):
        self.files, self.made, self.cancelled, self.answers, self.extra = {}, [], [], True, []
        self.foreign, self.fails = [], None
        self.lock = threading.Lock()

    def upload(self, name, content, purpose, expires_s=None):
        with self.lock:
            self.files[f"file-{len(self.files)}"] = content
            return f"file-{len(self.files) - 1}"

    def create_batch(self, endpoint, file, metadata, window):
        if self.fails:
            raise self.fails
        batch = {"id": f"batch_{len(self.made)}", "status": "in_progress", "input_file_id": file, "metadata": metadata, "created_at": 0}
        self.made.append(batch)
        return batch

    def batches(self, most):
        return [*self.foreign, *self.made]

    def lines(self, file, may_lack=False):
        return [json.loads(line) for line in self.files[file].splitlines()]

    def get(self, path):
        if path.startswith("/files"):
            return {"data": []}
        id = path.split("/")[2].partition("?")[0]
        batch = next(one for one in self.batches(0) if one["id"] == id)
        if "/results" not in path:
            return batch
        lines = self.lines(batch["input_file_id"]) if self.answers and batch in self.made else []
        if lines:
            batch["status"] = "completed"
        data = [
            {"custom_id": line["custom_id"], "response": {"body": {"output": line["body"]["input"]["args"][0]}}, "error": None} for line in lines
        ]
        return {"data": [*self.extra, *data], "has_more": False, "after": "1", "batch": batch}

    def request(self, method, path, **_):
        self.cancelled.append(path)
        raise OtelaError("Cannot cancel a batch with status 'completed'.", 409)


def client(memory, **options):
    made = opentela.Client("http://gateway", "sk", **options)
    made.gateway = made._sender.gateway = memory
    return made


class Sending(unittest.TestCase):
    def test_calls_that_follow_each_other_are_one_batch_and_equal_ones_run_as_often_as_called(self):
        memory = Memory()
        with client(memory) as made:
            futures = [made.submit(same, x) for x in (1, 1, 2)]
            self.assertEqual([one.result(30) for one in futures], [1, 1, 2])
        self.assertEqual(len(memory.made), 1)
        self.assertEqual(len({line["custom_id"] for line in memory.lines(memory.made[0]["input_file_id"])}), 3)
        self.assertEqual({one.run_id for one in futures}, {memory.made[0]["metadata"]["opentela_run"]})

    def test_more_lines_than_one_batch_holds_are_several_that_run_together(self):
        memory, most = Memory(), _sender.LINES_MAX
        _sender.LINES_MAX = 10
        try:
            with client(memory) as made:
                self.assertEqual(list(made.map(same, range(25))), list(range(25)))
        finally:
            _sender.LINES_MAX = most
        self.assertEqual([len(memory.lines(one["input_file_id"])) for one in memory.made], [10, 10, 5])

    def test_lines_that_a_gateway_invents_or_repeats_change_nothing(self):
        memory = Memory()
        memory.extra = [{}, {"custom_id": None}, {"custom_id": "invented", "response": {"body": {"output": 9}}}]
        with client(memory) as made:
            self.assertEqual(list(made.map(same, [1, 2])), [1, 2])

    def test_a_result_without_an_output_is_an_error_with_its_code(self):
        memory = Memory()
        with client(memory) as made:
            memory.answers = False
            future = made.submit(same, 1)
            while not memory.made:
                pass
            key = memory.lines(memory.made[0]["input_file_id"])[0]["custom_id"]
            memory.extra = [{"custom_id": key, "response": None, "error": {"code": "engine_failed", "message": "why"}}]
            with self.assertRaisesRegex(FunctionError, "why") as raised:
                future.result(30)
            self.assertEqual(raised.exception.code, "engine_failed")
            memory.answers = True

    def test_a_refused_batch_fails_its_calls_with_the_reason(self):
        memory = Memory()
        memory.fails = OtelaError("POST /batches: 403 This key may not call this endpoint.", 403)
        with client(memory) as made:
            with self.assertRaisesRegex(OtelaError, "may not call"):
                made.submit(same, 1).result(30)

    def test_a_batch_of_another_script_is_followed_and_does_not_hold_up_the_end(self):
        memory = Memory()
        with client(memory) as first:
            first.submit(same, 7).result(30)
        theirs = {**memory.made.pop(), "status": "in_progress", "id": "batch_theirs"}
        memory.foreign = [theirs]
        second = client(memory)
        self.assertEqual(second.submit(same, 8).result(30), 8)
        # Nothing waits for the other batch, so this returns although it still runs.
        ended = threading.Thread(target=second.shutdown)
        ended.start()
        ended.join(30)
        self.assertFalse(ended.is_alive())

    def test_cancel_futures_cancels_own_batches_and_forgives_those_that_have_ended(self):
        memory = Memory()
        memory.answers = False
        made = client(memory)
        made.submit(same, 1)
        while not memory.made:
            pass
        made.shutdown(wait=False, cancel_futures=True)
        self.assertEqual(memory.cancelled, ["/batches/batch_0/cancel"])
        with self.assertRaisesRegex(RuntimeError, "after shutdown"):
            made.submit(same, 2)
        memory.answers = True


class Counting(Memory):
    """Knows how many calls existed at most when a batch was made."""

    most = 0

    def create_batch(self, endpoint, file, metadata, window):
        gc.collect()
        alive = sum(isinstance(one, Call) and one.run == metadata["opentela_run"] for one in gc.get_objects())
        self.most = max(self.most, alive)
        return super().create_batch(endpoint, file, metadata, window)


class Millions(unittest.TestCase):
    def test_a_map_with_a_buffer_takes_inputs_as_it_returns_results_and_keeps_few_calls(self):
        memory, taken, returned = Counting(), 0, 0

        def inputs():
            nonlocal taken
            for number in range(2_000):
                taken += 1
                yield number % 1_500

        with client(memory) as made:
            results = made.map(same, inputs(), buffersize=100)
            for number, result in enumerate(results):
                self.assertEqual(result, number % 1_500)
                returned += 1
                self.assertLessEqual(taken, returned + 100)
            self.assertEqual(results.counts, {"total": 2_000, "completed": 2_000, "failed": 0})
        self.assertLessEqual(memory.most, 100)
        lines = [line for one in memory.made for line in memory.lines(one["input_file_id"])]
        # Inputs that are equal and far apart are different calls all the same.
        self.assertEqual(len({line["custom_id"] for line in lines}), 2_000)
        self.assertEqual({one["metadata"]["opentela_run"] for one in memory.made}, {results.id})

    def test_a_buffer_is_at_least_one_call_and_failures_are_raised_or_returned(self):
        def odd(x):
            if x % 2:
                raise ValueError(f"no {x}")
            return x

        with opentela.Client("local") as made:
            for size in (0, -1, 1.5):
                with self.assertRaisesRegex(OtelaError, "buffersize=.* must be a whole number"):
                    made.map(odd, [1], buffersize=size)
            results = made.map(odd, range(5), buffersize=1, return_exceptions=True)
            self.assertEqual([type(one).__name__ for one in results], ["int", "FunctionError", "int", "FunctionError", "int"])
            self.assertEqual(results.counts, {"total": 5, "completed": 3, "failed": 2})
            with self.assertRaisesRegex(FunctionError, "no 1"):
                list(made.map(odd, range(5), buffersize=2))

    def test_results_of_earlier_batches_are_found_and_the_newest_counts(self):
        memory = Memory()
        with client(memory) as first:
            list(first.map(same, range(4)))
        [made] = memory.made
        keys = [line["custom_id"] for line in memory.lines(made["input_file_id"])]
        memory.made.clear()
        memory.foreign = [{**made, "id": "batch_new", "output_file_id": "new"}, {**made, "id": "batch_old", "output_file_id": "old"}]
        result = lambda key, output: json.dumps({"custom_id": key, "response": {"body": {"output": output}}, "error": None})
        memory.files["new"] = "\n".join([result(keys[1], "newer"), result(None, 0), "{}"]).encode()
        memory.files["old"] = "\n".join(result(key, "old") for key in keys[:3]).encode()
        with client(memory) as second:
            self.assertEqual(list(second.map(same, range(4))), ["old", "newer", "old", 3])
        self.assertEqual([line["custom_id"] for line in memory.lines(memory.made[0]["input_file_id"])], keys[3:])

    def test_a_table_of_keys_is_a_dict_in_little_memory(self):
        chance = random.Random(1)
        table, known = KeyTable("I"), {}
        for _ in range(20_000):
            key = f"key-{chance.randrange(8_000)}"
            self.assertEqual(table.get(key, -1), known.get(key, -1))
            table[key] = known[key] = chance.randrange(2**32)
        self.assertEqual(len(table), len(known))
        self.assertLess(table._hashes.itemsize * len(table._hashes) + table._numbers.itemsize * len(table._numbers), 36 * len(known))


if __name__ == "__main__":
    unittest.main()
