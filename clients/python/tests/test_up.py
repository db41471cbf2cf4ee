"""`opentela.up` with a program that acts as otela."""

import os
import sys
import tempfile
import types
import unittest
import unittest.mock

import opentela
from opentela._errors import OtelaError
from opentela._up import _words

OTELA = """#!{python}
import json, signal, sys, time
open({log!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
if "fails" in sys.argv:
    sys.exit(69)
print(json.dumps({{"url": "http://127.0.0.1:8787/v1", "api_key": "sk-x", "model": sys.argv[2]}}), flush=True)
if "elsewhere" in sys.argv:
    sys.exit(0)
def end(*_):
    open({log!r}, "a").write("ended\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open({log!r}, "a").write("serves\\n")
time.sleep(60)
"""


class Client:
    def __init__(self, base_url, api_key):
        self.access = (base_url, api_key)
        self.is_closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_closed = True


class UpTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.otela = os.path.join(directory.name, "otela")
        self.log = os.path.join(directory.name, "log")
        with open(self.otela, "w") as file:
            file.write(OTELA.format(python=sys.executable, log=self.log))
        os.chmod(self.otela, 0o755)
        sdk = types.ModuleType("openai")
        sdk.OpenAI = Client
        patch = unittest.mock.patch.dict(sys.modules, openai=sdk)
        patch.start()
        self.addCleanup(patch.stop)

    def lines(self):
        with open(self.log) as file:
            return file.read().splitlines()

    def wait_until_served(self):
        while "serves" not in self.lines():
            pass

    def test_the_client_has_the_address_and_the_job_ends_with_the_block(self):
        with opentela.up("m", "cluster", otela=self.otela, gpus=2, setup=["module load vllm"]) as client:
            self.assertEqual(client.access, ("http://127.0.0.1:8787/v1", "sk-x"))
            self.wait_until_served()
        self.assertTrue(client.is_closed)
        self.assertEqual(self.lines(), ["up m --json --host=cluster --rm --gpus=2 --setup=module load vllm", "serves", "ended"])

    def test_the_job_ends_when_the_block_fails(self):
        with self.assertRaises(ZeroDivisionError):
            with opentela.up("m", "cluster", otela=self.otela, leave=True, command=["serve", "{{port}}"]):
                self.wait_until_served()
                raise ZeroDivisionError
        self.assertEqual(self.lines(), ["up m --json --host=cluster -- serve {{port}}", "serves", "ended"])

    def test_a_model_that_another_process_serves(self):
        with opentela.up("elsewhere", otela=self.otela) as client:
            self.assertEqual(client.access[1], "sk-x")

    def test_a_failure_names_the_exit_code(self):
        with self.assertRaisesRegex(OtelaError, "exit code 69; its last lines say why"):
            with opentela.up("fails", "cluster", otela=self.otela):
                self.fail("the block ran")

    def test_a_missing_program_is_told(self):
        with self.assertRaisesRegex(OtelaError, "no program /nowhere/otela"):
            with opentela.up("m", "cluster", otela="/nowhere/otela"):
                self.fail("the block ran")

    def test_a_value_that_begins_with_a_dash_is_no_flag(self):
        words = list(_words({"engine_argument": ["--max-model-len=8192", "--x"], "cold": True, "rm": False, "time": None}))
        self.assertEqual(words, ["--engine-argument=--max-model-len=8192", "--engine-argument=--x", "--cold"])


if __name__ == "__main__":
    unittest.main()
