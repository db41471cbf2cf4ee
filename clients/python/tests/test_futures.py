"""Calls that wait for other calls."""

import json
import threading
import unittest
from concurrent.futures import Future

import opentela
from opentela import _files
from opentela._errors import FunctionError, OtelaError
from test_sender import Memory


@opentela.function
def double(x):
    return 2 * x


@opentela.function
def add(*values, more=0):
    return sum(value if type(value) is int else sum(value) for value in values) + more


@opentela.function
def fail(x):
    raise ValueError(f"no {x}")


@opentela.function
def same(x):
    return x


def local():
    return opentela.Client("local")


def at_gateway(gateway):
    client = opentela.Client("http://gateway", "key", progress=False)
    client.gateway = client._sender.gateway = gateway
    return client


class Futures(unittest.TestCase):
    def test_arguments(self):
        with local() as client:
            one, two = client.submit(double, 1), client.submit(double, 2)
            whole = client.submit(add, one, [two, one], more=client.submit(double, 5), after=[two])
            run = client.map(double, client.map(double, range(3)).futures)
        # The client waited for all of them.
        self.assertEqual(whole.result(0), 2 + (4 + 2) + 10)
        self.assertEqual(list(run), [0, 4, 8])

    def test_nested(self):
        with local() as client:
            two = client.submit(double, 1)
            self.assertEqual(client.submit(same, {"a": [two], "b": (two, 3)}).result(30), {"a": [2], "b": (2, 3)})

    def test_the_first_cause_is_named(self):
        with local() as client:
            last = client.submit(double, client.submit(add, 1, client.submit(fail, "luck")))
            error = last.exception(30)
        self.assertEqual(error.code, "dependency_failed")
        self.assertRegex(str(error), r"^double did not run, because a call of fail, on which it depends, failed: .*ValueError: no luck")
        self.assertIsInstance(error.__cause__, FunctionError)

    def test_another_executor(self):
        mine = Future()
        with local() as client:
            waits = client.submit(double, mine)
            mine.set_result(4)
            self.assertEqual(waits.result(30), 8)
            gone = Future()
            lost = client.submit(double, gone)
            gone.cancel()
            self.assertIn("a call of another executor, on which it depends, failed: it was cancelled", str(lost.exception(30)))

    def test_what_cannot_be_sent_fails_its_call(self):
        mine = Future()
        with local() as client:
            lost = client.submit(same, mine)
            mine.set_result(threading.Lock())
            self.assertIsInstance(lost.exception(30), TypeError)

    def test_a_call_is_sent_when_its_inputs_are_there(self):
        gateway, mine = Memory(), Future()
        client = at_gateway(gateway)
        waits = client.submit(same, mine, after=[client.submit(same, 1)])
        self.assertFalse(waits.done())
        mine.set_result({"$pickle": "a node wrote this"})
        client.shutdown()
        self.assertEqual(len(gateway.made), 2)
        [line] = gateway.lines(gateway.made[1]["input_file_id"])
        # The value travels as a value: nothing unpickles what a node wrote.
        self.assertNotEqual(line["body"]["input"]["$pickle"], "a node wrote this")
        self.assertNotIn("args", line["body"]["input"])

    def test_a_closed_client_takes_no_calls_and_sends_those_that_wait(self):
        gateway, mine = Memory(), Future()
        client = at_gateway(gateway)
        waits = client.submit(same, mine)
        client.shutdown(wait=False)
        with self.assertRaises(RuntimeError):
            client.submit(same, mine)
        mine.set_result(3)
        self.assertEqual(waits.result(30), 3)


class Holding(Memory):
    """A gateway that holds calls, and answers no line while `answers` is false. `knows`: False for one of an earlier version."""

    def __init__(self, knows=True, refuses=()):
        super().__init__()
        self.answers, self.knows, self.refuses, self.asked = False, knows, list(refuses), []

    def create_batch(self, endpoint, file, metadata, window, after=()):
        self.asked.append(list(after))
        if after and self.refuses:
            raise self.refuses.pop()
        made = super().create_batch(endpoint, file, metadata, window)
        return {**made, "x_otela": {"after": list(after)} if self.knows and after else {}}

    def request(self, method, path, **_):
        self.cancelled.append(path)

    def of(self, number):
        return self.lines(self.made[number]["input_file_id"])


class Held(unittest.TestCase):
    def sent(self, client, gateway, batches):
        client._sender.flush()
        self.assertEqual(len(gateway.made), batches)

    def test_the_gateway_gets_calls_before_the_results_that_they_need(self):
        gateway = Holding()
        client = at_gateway(gateway)
        first = client.map(same, [1, 2]).futures
        client.submit(add, first[1], [first[0], 7], more=3, after=[first[0]])
        client.submit(opentela.served("m"), first[0])
        self.sent(client, gateway, 3)
        self.assertEqual(gateway.asked, [[], ["batch_0"], ["batch_0"]])
        [line] = gateway.of(1)
        reference = {"$result": [0, 1]}
        self.assertEqual(line["body"]["input"], {"args": [reference, [{"$result": [0, 0]}, 7]], "kwargs": {"more": 3}})
        self.assertEqual(line["after"], [[0, 0]])
        [line] = gateway.of(2)
        self.assertEqual(line["body"]["messages"], [{"role": "user", "content": {"$result": [0, 0]}}])
        gateway.answers = True
        client.shutdown(wait=False)

    def test_the_same_script_names_the_same_calls(self):
        keys = []
        for answers in (False, True):
            gateway = Holding()
            gateway.answers = answers
            client = at_gateway(gateway)
            one = client.submit(same, 1)
            if answers:
                one.result(30)
            client.submit(double, one)
            self.sent(client, gateway, 2)
            keys.append(gateway.of(1)[0]["custom_id"])
            # The result is there the second time, so that the line has it.
            self.assertEqual(gateway.of(1)[0]["body"]["input"]["args"], [1] if answers else [{"$result": [0, 0]}])
            gateway.answers = True
            client.shutdown()
        self.assertEqual(*keys)

    def test_a_gateway_that_does_not_hold_calls_gets_them_with_the_results(self):
        ended = OtelaError("POST /batches: 409 batch_0 has ended", 409)
        for gateway, cancelled in ((Holding(knows=False), ["/batches/batch_1/cancel"]), (Holding(refuses=[ended]), [])):
            client = at_gateway(gateway)
            last = client.submit(same, client.submit(same, 5))
            client._sender.flush()
            self.assertTrue(client._sender.blocked)
            self.assertEqual(gateway.cancelled, cancelled)
            gateway.answers = True
            self.assertEqual(last.result(30), 5)
            self.assertEqual(gateway.of(-1)[0]["body"]["input"]["args"], [5])
            client.shutdown()

    def test_what_a_line_cannot_say_is_held_by_the_script(self):
        gateway = Holding()
        client = at_gateway(gateway)
        one = client.submit(same, 1)
        for value in ((one,), {"$otela_value": one}, [one, {1, 2}]):
            client.submit(same, value)
        client._sender.flush()
        self.assertEqual(len(gateway.made), 1)
        gateway.answers = True
        client.shutdown()
        self.assertEqual(gateway.asked, [[]] * len(gateway.made))

    def test_a_call_with_a_failed_need_fails_alone_although_another_need_is_not_sent(self):
        gateway = Holding()
        client = at_gateway(gateway)
        bad = client.submit(add, 1)
        self.sent(client, gateway, 1)
        bad.set_exception(FunctionError("no luck", "function_failed"))
        two = client.submit(add, 3, 4)
        end = client.submit(add, bad, two)
        self.assertEqual(end.exception(30).code, "dependency_failed")
        self.sent(client, gateway, 2)
        gateway.answers = True
        self.assertEqual(two.result(30), 3)
        client.shutdown()

    def test_a_file_of_a_result_that_is_there_goes_with_references_to_the_others(self):
        gateway = Holding()
        client = at_gateway(gateway)
        one, two = client.map(same, [1, 2]).futures
        self.sent(client, gateway, 1)
        entry = {"id": "file-1", "name": "plot.png", "bytes": 1, "sha256": ""}
        one.set_result([7, _files.ResultFile(gateway, entry)])
        client.submit(add, one, two)
        self.sent(client, gateway, 2)
        [line] = gateway.of(1)
        there = {"$otela_value": [7, {"$file": 0, "name": "plot.png"}], "files": [["file-1", "plot.png"]]}
        self.assertEqual(line["body"]["input"]["args"], [there, {"$result": [0, 1]}])
        self.assertEqual(line["body"]["files"], ["file-1"])
        gateway.answers = True
        client.shutdown(wait=False)


class Answers(Memory):
    """Answers chat completions."""

    def get(self, path):
        if "/results" not in path:
            return super().get(path)
        batch = next(one for one in self.made if one["id"] in path)
        batch["status"] = "completed"
        data = [
            {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": self.answer(line["body"])}, "error": None}
            for line in self.lines(batch["input_file_id"])
        ]
        return {"data": data, "has_more": False, "after": "1", "batch": batch}

    def answer(self, body):
        text = body["messages"][0]["content"]
        if text == "filtered":
            return {"error": {"message": "no", "code": "content_filter"}}
        return {"object": "chat.completion", "choices": [{"message": {"content": text.upper()}}]}


class Printing(Memory):
    def get(self, path):
        return {"object": "otela.batch.log", "text": f"{path}\n"} if path.endswith("/log") else super().get(path)


class Logs(unittest.TestCase):
    def test_logs_of_a_run_are_those_of_its_batches_alone(self):
        gateway = Printing()
        with at_gateway(gateway) as client:
            run = client.map(same, [1])
            client.map(same, [2])
        mine = [one["id"] for one in gateway.made if one["metadata"]["opentela_run"] == run.id]
        self.assertEqual(run.logs(), f"/batches/{mine[0]}/log\n")
        with local() as client, self.assertRaisesRegex(OtelaError, "a local run has no batches"):
            client.map(same, [1]).logs()


class Served(unittest.TestCase):
    def test_a_served_model_is_a_step(self):
        gateway = Answers()
        with at_gateway(gateway) as client:
            run = client.map(opentela.served("Qwen/Qwen3-8B", max_tokens=5), ["a", {"messages": [{"role": "user", "content": "b"}]}])
            self.assertEqual(list(run), ["A", "B"])
            [one] = gateway.made
            line = gateway.lines(one["input_file_id"])[0]
            self.assertEqual(line["url"], "/v1/chat/completions")
            self.assertEqual(line["body"], {"max_tokens": 5, "model": "Qwen/Qwen3-8B", "messages": [{"role": "user", "content": "a"}]})
            error = client.submit(opentela.served("Qwen/Qwen3-8B"), "filtered").exception(30)
            self.assertEqual((str(error), error.code), ("no", "content_filter"))

    def test_what_it_does_not_take(self):
        with self.assertRaisesRegex(OtelaError, "must be one of chat/completions, embeddings"):
            opentela.served("m", endpoint="files")
        with local() as client, self.assertRaisesRegex(OtelaError, "a local run needs a function in its place"):
            client.submit(opentela.served("m"), "a")
        with self.assertRaisesRegex(TypeError, "takes one argument"):
            at_gateway(Answers()).submit(opentela.served("m"), 3)
        self.assertEqual(json.loads(opentela.served("m", endpoint="embeddings").text(("a",), {})), {"model": "m", "input": "a"})


if __name__ == "__main__":
    unittest.main()
