"""The client without a gateway: python3 -m unittest discover -s tests (in clients/python)"""

import asyncio
import base64
import concurrent.futures
import dataclasses
import datetime
import decimal
import fractions
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import zipfile

import opentela
from opentela import _bundle, _environment, _files, _function, _values
from opentela._errors import FunctionError, OtelaError
from opentela._gateway import Gateway


@dataclasses.dataclass
class Claim:
    text: str
    score: float = 0.5


LOADED = []


def load(factor=2):
    LOADED.append(factor)
    return factor


@opentela.function(load=load, context={"factor": 3})
def times(factor, x, *, plus=0):
    return factor * x + plus


@opentela.function(batch_size=4)
def sizes(items):
    return [len(items) for _ in items]


@opentela.function
async def waits(x):
    await asyncio.sleep(0.001)
    return x + 1


@opentela.function
def written(name):
    with open(name, "w") as file:
        file.write("drawn")
    return name, opentela.File(name)


@opentela.function
def pieces(x):
    yield x
    yield x + 1


@opentela.function
def same(x):
    return x


# Packages that draw bars, as far as the client uses them.
PROGRESS = {
    "tqdm/auto.py": """
import sys
class tqdm:
    def __init__(self, total, desc): print(f"total={total}", file=sys.stderr)
    def update(self, count): print(f"+{count}", file=sys.stderr)
    def close(self): print("closed", file=sys.stderr)
""",
    "rich/progress.py": """
import sys
class Progress:
    def add_task(self, label, total): print(f"total={total}", file=sys.stderr)
    def start(self): pass
    def advance(self, task, count): print(f"+{count}", file=sys.stderr)
    def stop(self): print("closed", file=sys.stderr)
""",
}


@opentela.function
def first_line(file, more=()):
    with open(file) as lines:
        return [os.path.basename(file), lines.readline(), *(open(one).read() for one in more)]


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "claims.csv")
        with open(self.path, "w") as file:
            file.write("a,b\n")

    def test_a_call_reads_a_file_that_is_an_argument_or_in_one(self):
        file = opentela.File(self.path)
        with opentela.Client("local") as client:
            self.assertEqual(client.submit(first_line, file, more=[file]).result(), ["claims.csv", "a,b\n", "a,b\n"])
        self.assertEqual(first_line(file), ["claims.csv", "a,b\n"])

    def test_a_file_that_does_not_exist_or_cannot_travel_is_refused_before_the_call(self):
        with self.assertRaisesRegex(OtelaError, "there is no file"):
            opentela.File(self.path + ".gone")
        holder = Claim(opentela.File(self.path))
        with opentela.Client("local") as client, self.assertRaisesRegex(TypeError, "a File can be an argument"):
            client.submit(same, holder)

    def test_a_node_finds_a_file_by_its_id_under_its_own_name(self):
        from opentela import _files

        with tempfile.TemporaryDirectory() as folder:
            files, home = os.path.join(folder, "files"), os.path.join(folder, "home")
            os.makedirs(files)
            with open(os.path.join(files, "file-1"), "w") as file:
                file.write("x")
            with unittest.mock.patch.dict(os.environ, {"OTELA_FILES": files, "HOME": home}):
                marked = [{"$file": "file-1", "name": "../../a.csv"}]
                (found,) = _files.placed(marked)
                _files.placed(marked)
                # As the gateway writes the result of another call, here with a tuple, which is pickled.
                result = {"$otela_value": _values.encode(("a", {"$file": 0, "name": "x"})), "files": [["file-1", "plot.png"]]}
                title, plot = _files.placed([result])[0]
                with self.assertRaisesRegex(FunctionError, "names a file that it does not have"):
                    _files.placed({**result, "files": []})
            self.assertEqual((title, plot.name), ("a", "plot.png"))
            self.assertEqual(found.name, "a.csv")
            self.assertTrue(found.path.startswith(home + os.sep))
            with open(found) as file:
                self.assertEqual(file.read(), "x")


class Imports(unittest.TestCase):
    def test_a_class_of_a_package_as_load_needs_only_what_the_package_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            packages = os.path.join(folder, "site-packages")
            os.makedirs(packages)
            with open(os.path.join(packages, "heavy.py"), "w") as file:
                file.write("class Model:\n    def __init__(self):\n        pass\n    def export(self):\n        import nothing_has_this_name\n")
            with unittest.mock.patch.object(sys, "path", [packages, *sys.path]):
                import heavy

                self.assertEqual(_bundle._needed_by(_function.Function(first_line, heavy.Model)), set())
                del sys.modules["heavy"]


class Environments(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "env.tar.gz")
        self.write(b"0123456789")

    def write(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    def packed(self):
        return _bundle.pack(opentela.function(environment=self.path)(first_line.infer))

    def test_the_archive_travels_in_pieces_and_its_hash_is_part_of_the_context(self):
        sent = {}

        def stored(name, extension, content):
            sent[name] = content()
            return f"file-{len(sent)}"

        with unittest.mock.patch.object(_environment, "PIECE_BYTES", 4):
            bundle = self.packed()
            packed = json.loads(bundle.text_with(stored))
        self.assertEqual(list(sent.values()), [b"0123", b"4567", b"89"])
        self.assertEqual(packed["environment_files"], ["file-1", "file-2", "file-3"])
        self.assertEqual(packed["options"]["environment"], hashlib.sha256(b"0123456789").hexdigest())
        self.assertNotIn("environment_files", json.loads(bundle.text))
        self.write(b"other content")
        self.assertNotEqual(self.packed().context, bundle.context)

    def test_it_excludes_packages_and_must_be_there(self):
        for options in ({"requirements": ["numpy"]}, {"python": "3.12"}):
            with self.assertRaisesRegex(OtelaError, "leave out requirements= and python="):
                opentela.function(environment=self.path, **options)
        os.unlink(self.path)
        with self.assertRaisesRegex(OtelaError, "No such file"):
            self.packed()
        with unittest.mock.patch.object(_environment, "PIECES_MAX", 0), self.assertRaisesRegex(OtelaError, "at most 0 are possible"):
            self.write(b"x")
            self.packed()


class ResultFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        root = os.path.realpath(folder.name)
        self.call, self.outputs = os.path.join(root, "call"), os.path.join(root, "outputs")
        os.makedirs(self.call)
        os.makedirs(self.outputs)
        os.chdir(self.call)

    def write(self, name, content="x"):
        with open(name, "w") as file:
            file.write(content)
        return opentela.File(name)

    def collected(self, value):
        return _files.collected(value, self.call, self.outputs)

    def test_a_file_of_a_result_is_moved_once_and_other_values_stay(self):
        plot = self.write("plot.png")
        os.mkdir("deep")
        made = self.collected([1, (plot, {"again": plot}), self.write("deep/b.csv")])
        self.assertEqual(made.value, [1, ({"$file": 0, "name": "plot.png"}, {"again": {"$file": 0, "name": "plot.png"}}), {"$file": 1, "name": "b.csv"}])
        self.assertEqual([file["name"] for file in made.files], ["plot.png", "b.csv"])
        self.assertEqual(sorted(os.listdir(self.outputs)), sorted(file["path"] for file in made.files))
        self.assertEqual(os.listdir(self.call), ["deep"])
        same = {"a": [1, 2]}
        self.assertIs(self.collected(same), same)

    def test_files_elsewhere_links_and_odd_names_are_refused(self):
        self.write("../outside")
        os.symlink("/etc/hostname", "link")
        os.symlink("..", "up")
        for path in ("../outside", "link", "up/outside", "/etc/hostname"):
            with self.assertRaisesRegex(OtelaError, "that it wrote below its working directory"):
                self.collected(opentela.File(path))
        with self.assertRaisesRegex(OtelaError, "all are printable"):
            self.collected(self.write("a\nb"))

    def test_more_files_than_a_result_may_have_leave_nothing(self):
        with self.assertRaisesRegex(OtelaError, "at most 64 files"):
            self.collected([self.write(f"{i}.txt") for i in range(65)])
        self.assertEqual(os.listdir(self.outputs), [])

    def test_an_agent_of_an_earlier_version_is_named(self):
        with self.assertRaisesRegex(OtelaError, "its agent is of an earlier version"):
            _files.collected(self.write("a"), self.call, None)

    def test_a_result_cannot_name_what_its_node_did_not_send_or_a_path(self):
        good = {"id": "file-1", "name": "a.txt", "bytes": 1, "sha256": "0"}
        mark = {"$file": 0, "name": "x"}
        (found,) = _files.received([mark], [good], None)
        self.assertEqual((found.name, found.id, found.bytes), ("a.txt", "file-1", 1))
        self.assertEqual(_files.received([{**good, "name": "../../a.txt"}], [], None)[0]["name"], "../../a.txt")
        self.assertEqual(_files.received(mark, [{**good, "name": "../../a.txt"}], None).name, "a.txt")
        for files in ([], {}, None, [1], [{**good, "id": "../x"}], [{**good, "name": ".."}], [{**good, "name": "a\nb"}], [{**good, "bytes": "1"}]):
            with self.assertRaises(FunctionError, msg=repr(files)):
                _files.received({"deep": [mark]}, files, None)
        with self.assertRaises(FunctionError):
            _files.received({"$file": -1, "name": "x"}, [good], None)

    def test_a_local_run_returns_the_file_that_the_call_wrote(self):
        with opentela.Client("local") as client:
            name, plot = client.submit(written, "plot.png").result()
        with open(plot) as file:
            self.assertEqual((name, file.read()), ("plot.png", "drawn"))
        os.mkdir("saved")
        self.assertEqual(plot.save("saved"), os.path.join("saved", "plot.png"))


class Downloads(unittest.TestCase):
    def download(self, content, size=5, digest=hashlib.sha256(b"hello").hexdigest(), ends=False):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "a")
        answers = [io.BytesIO(content)] if ends else [io.BytesIO(b"he"), io.BytesIO(content)]

        def request(method, address, stream):
            while True:
                try:
                    return stream(answers.pop(0))
                except ConnectionError:
                    pass

        gateway = Gateway("http://localhost", "key")
        with unittest.mock.patch.object(gateway, "request", request):
            gateway.download("file-1", path, size, digest)
        with open(path, "rb") as file:
            return file.read()

    def test_a_cut_response_is_asked_for_again(self):
        self.assertEqual(self.download(b"hello"), b"hello")

    def test_other_bytes_or_more_are_no_file(self):
        for content in (b"hallo", b"hello!"):
            with self.assertRaisesRegex(OtelaError, "is not the one that the call wrote"):
                self.download(content, ends=True)

    def test_a_disk_that_cannot_be_written_is_not_a_broken_connection(self):
        with self.assertRaisesRegex(OtelaError, "cannot be written"):
            with unittest.mock.patch("builtins.open", side_effect=OSError("full")):
                self.download(b"hello")


class Local(unittest.TestCase):
    def setUp(self):
        self.client = opentela.Client("local")
        self.addCleanup(self.client.shutdown)

    def test_is_an_executor_of_the_standard_library(self):
        self.assertIsInstance(self.client, concurrent.futures.Executor)
        self.assertIs(opentela.Executor, opentela.Client)
        self.assertEqual(self.client.submit(pow, 2, 10).result(), 1024)
        self.assertEqual(list(self.client.map(pow, [2, 3], [3, 2], chunksize=8, timeout=60)), [8, 9])
        done = [future.result() for future in opentela.as_completed([self.client.submit(same, n) for n in range(5)])]
        self.assertEqual(sorted(done), [0, 1, 2, 3, 4])

    def test_the_state_is_loaded_once_with_the_arguments_of_the_context(self):
        LOADED.clear()
        fresh = times.with_context(factor=3)
        self.assertEqual(self.client.submit(fresh, 5, plus=1).result(), 16)
        self.assertEqual(list(self.client.map(fresh, [1, 2])), [3, 6])
        self.assertEqual(self.client.submit(times.with_context(factor=10), 2).result(), 20)
        self.assertEqual(LOADED, [3, 10])

    def test_a_direct_call_is_the_function_with_its_state(self):
        self.assertEqual(times(4, plus=2), 14)
        self.assertEqual(times.__name__, "times")

    def test_generators_coroutines_lambdas_and_closures(self):
        self.assertEqual(list(self.client.map(waits, [1, 2])), [2, 3])
        self.assertEqual(self.client.submit(pieces, 7).result(), [7, 8])
        base = 40
        self.assertEqual(self.client.submit(lambda x: x + base, 2).result(), 42)

    def test_a_batched_function_gets_lists_of_its_size(self):
        self.assertEqual(list(self.client.map(sizes, range(6))), [4, 4, 4, 4, 2, 2])

    def test_arguments_and_results_of_any_type_come_back_equal(self):
        values = [Claim("é"), {1, 2}, (1, [2]), b"\x00", 1 + 2j, decimal.Decimal("0.1"), datetime.date(2026, 1, 2), float("inf"), {1: 2}]
        self.assertEqual(list(self.client.map(same, values)), values)

    def test_an_exception_names_its_cause_and_its_line(self):
        with self.assertRaisesRegex(FunctionError, "TypeError") as raised:
            self.client.submit(times, None).result()
        self.assertIsInstance(raised.exception.__cause__, TypeError)
        run = self.client.map(times, [1, None, 3], return_exceptions=True)
        self.assertEqual([type(one).__name__ for one in run], ["int", "FunctionError", "int"])
        self.assertEqual(run.counts, {"total": 3, "completed": 2, "failed": 1})

    def test_what_cannot_be_pickled_is_refused_with_the_argument(self):
        with self.assertRaisesRegex(TypeError, "argument 1 of same: .*lock cannot be pickled .*pass its path"):
            self.client.submit(same, threading.Lock())

    def test_arguments_that_are_too_large_say_what_to_do(self):
        with self.assertRaisesRegex(OtelaError, "at most 4190208 are possible: pass a path"):
            self.client.submit(same, "x" * 5_000_000)

    def test_a_bar_counts_each_result_with_what_is_installed(self):
        for name, text in PROGRESS.items():
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, *name.split("/"))
                os.makedirs(os.path.dirname(path))
                open(os.path.join(os.path.dirname(path), "__init__.py"), "w").close()
                with open(path, "w") as file:
                    file.write(text)
                ask = "import opentela; print(list(opentela.Client('local').map(pow, [2, 3], [2, 2], progress=True)))"
                # -S: without packages of the site, which may have the other one.
                env = {"PYTHONPATH": os.pathsep.join([folder, *(path for path in sys.path if "site-packages" not in path)])}
                shown = subprocess.run([sys.executable, "-S", "-c", ask], env=env, capture_output=True, text=True, check=True)
                self.assertEqual(shown.stdout, "[4, 9]\n")
                self.assertEqual(shown.stderr.split(), ["total=2", "+1", "+1", "closed"])

    def test_a_script_without_a_gateway_says_what_to_set_and_pytest_needs_none(self):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("OTELA_", "PYTEST_"))}
        ask = [sys.executable, "-c", "import opentela; print(opentela.Client().is_local)"]
        refused = subprocess.run(ask, env=env, capture_output=True, text=True, check=False)
        self.assertIn("set OTELA_GATEWAY and OTELA_API_KEY", refused.stderr)
        tested = subprocess.run(ask, env={**env, "PYTEST_CURRENT_TEST": "x"}, capture_output=True, text=True, check=True)
        self.assertEqual(tested.stdout, "True\n")


class Hostile:
    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        return self.made


def pickled(value):
    return {_values.PICKLE: base64.b64encode(pickle.dumps(value)).decode()}


class Results(unittest.TestCase):
    """What a hostile node may send."""

    def test_runs_no_code_of_a_node(self):
        here = sys.modules[__name__].__name__
        attacks = [
            Hostile((os.system, ("touch /tmp/opentela-was-here",))),
            Hostile((eval, ("1",))),
            Hostile((getattr, (Claim, "__init__"))),
            Hostile((subprocess.Popen, (["true"],))),
            [Claim("x"), Hostile((exec, ("pass",)))],
        ]
        for attack in attacks:
            with self.assertRaisesRegex(FunctionError, "a node could run any code here.*trust_nodes"):
                _values.decode_result(pickled(attack), {here})
        # Names that the function's module only imported are not its classes.
        for name in (b"subprocess", b"os.system", b"concurrent"):
            text = b"c" + here.encode() + b"\n" + name + b"\n."
            with self.assertRaises(FunctionError):
                _values.decode_result({_values.PICKLE: base64.b64encode(text).decode()}, {here})

    def test_change_no_class(self):
        for module, name in [("fractions", "Fraction"), (Claim.__module__, "Claim")]:
            text = f"c{module}\n{name}\n(N}}Vinjected\nI1\nstb.".encode()
            with self.assertRaisesRegex(FunctionError, "change a class"):
                _values.decode_result({_values.PICKLE: base64.b64encode(text).decode()}, {Claim.__module__})
        self.assertFalse(hasattr(fractions.Fraction, "injected") or hasattr(Claim, "injected"))

    def test_of_classes_of_the_functions_file_are_made(self):
        self.assertEqual(_values.decode_result(pickled(Claim("a")), {Claim.__module__}), Claim("a"))
        with self.assertRaises(FunctionError):
            _values.decode_result(pickled(Claim("a")), ())
        self.assertEqual(_values.decode_result(pickled(Claim("a")), (), trust=True), Claim("a"))

    def test_that_are_garbage_say_so(self):
        for text in ("", "!", base64.b64encode(b"garbage").decode()):
            with self.assertRaisesRegex(FunctionError, "cannot be unpickled here"):
                _values.decode_result({_values.PICKLE: text})

    def test_of_plain_types_need_no_trust(self):
        for value in [{1, 2}, (1,), 1j, datetime.timedelta(1), decimal.Decimal(1), b"x", float("nan")]:
            found = _values.decode_result(pickled(value))
            self.assertTrue(found == value or found != found)

    def test_stay_json_if_json_keeps_them(self):
        for value in [1, "é", 2**70, [None, {"a": 1.5}], True]:
            self.assertIs(_values.encode(value), value)
        for value in [(1,), float("nan"), {1: 2}, {_values.PICKLE: 1}, "\ud800", True if False else {"a": (1,)}]:
            self.assertTrue(_values.is_pickled(_values.encode(value)))


class Packing(unittest.TestCase):
    def test_the_context_is_that_of_code_arguments_and_options(self):
        contexts = [
            _bundle.pack(one).context
            for one in (times, times.with_context(factor=4), opentela.function(times.infer, load=load, context={"factor": 3}, gpus=1), same)
        ]
        self.assertEqual(len(set(contexts)), 4)
        self.assertEqual(_bundle.pack(times).context, contexts[0])

    def test_a_function_that_is_too_large_says_what_to_do(self):
        large = os.urandom(_bundle.BYTES_MAX)

        def carries(x):
            return len(large) + x

        with self.assertRaisesRegex(OtelaError, "at most 524288 .*requirements=.*load data in load"):
            _bundle.pack(_function.as_function(carries))

    def test_what_cannot_travel_says_what_to_do(self):
        lock = threading.Lock()
        with self.assertRaisesRegex(OtelaError, "cannot be pickled .*in load"):
            _bundle.pack(_function.as_function(lambda: lock))

    def test_options_are_checked_where_they_are_written(self):
        wrong = {
            "python": "3",
            "gpus": -1,
            "vram": "much",
            "memory": "40 GX",
            "batch_size": 101,
            "timeout": "soon",
            "requirements": ["a\nb"],
        }
        for name, value in wrong.items():
            with self.assertRaisesRegex(OtelaError, name):
                opentela.function(**{name: value})
        options = opentela.function(same.infer, vram="40 GiB", require="gpu=H100", memory="2GB", timeout="30m").options
        self.assertEqual(options, {"require": "gpu=H100; vram>=40", "memory_bytes": 2_000_000_000, "timeout_s": 1800.0})
        with self.assertRaisesRegex(OtelaError, "there is no load="):
            opentela.function(same.infer, context={"a": 1})

    def test_a_second_decorator_adds_to_the_first_or_replaces_it(self):
        again = opentela.function(times, gpus=2, vram="20 GiB", context={"factor": 10})
        again = opentela.function(again, vram="40 GiB", require="gpu=H100", batch_size=8)
        self.assertEqual(again.options, {"gpus": 2, "require": "gpu=H100; vram>=40", "batch_size": 8})
        self.assertEqual((again.infer, again.load, again(4)), (times.infer, load, 40))
        self.assertEqual(times.options, {})
        other = opentela.function(times, load=lambda: 100)
        self.assertEqual((other.context, other(4)), ({}, 400))
        with self.assertRaisesRegex(OtelaError, "leave out requirements="):
            opentela.function(opentela.function(same, requirements=["numpy"]), environment="env.tar")

    def test_attributes_of_the_function_are_not_those_of_the_decorator(self):
        def plain(x):
            return x

        plain.options, plain.load, plain.author = {"gpus": 64}, load, "me"
        marked = opentela.function(plain, gpus=1)
        self.assertEqual((marked.options, marked.load, marked.author), ({"gpus": 1}, None, "me"))

    def test_only_what_a_node_imports_is_needed(self):
        with tempfile.TemporaryDirectory() as folder:
            files = {
                "beside.py": "import wanted_beside\nA = 1\n",
                "whole/__init__.py": "",
                "whole/part.py": "B = 2\n",
                "main.py": (
                    "import json, opentela, beside, wanted_top\nfrom whole.part import B\n"
                    "try:\n    import replaced\nexcept ImportError:\n    replaced = None\n"
                    "def other():\n    import of_another\n"
                    "@opentela.function\ndef f(x):\n    import wanted_inside\n    return x\n"
                    "if __name__ == '__main__':\n    import only_here\n"
                ),
            }
            for name, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
            found, needed = {}, {}
            tree = _bundle._parsed(files["main.py"].encode(), "main.py")
            inside = {"wanted_inside"}
            run, mentioned = _bundle._imports_of(tree)
            _bundle._collect(run | inside, mentioned, found, needed, folder)
            self.assertEqual(sorted(found), ["beside.py", "whole/__init__.py", "whole/part.py"])
            self.assertEqual(sorted(needed), ["wanted_beside", "wanted_inside", "wanted_top"])

    @unittest.skipUnless(_values.cloudpickle, "cloudpickle is not installed")
    def test_cloudpickle_travels_with_its_pickles(self):
        """Only the same version reads them."""
        names = zipfile.ZipFile(io.BytesIO(base64.b64decode(_bundle.library(True)))).namelist()
        self.assertIn("cloudpickle/cloudpickle.py", names)

    def test_without_cloudpickle_a_lambda_says_what_it_needs(self):
        with unittest.mock.patch.object(_values, "cloudpickle", None):
            self.assertRaisesRegex(TypeError, r"pip install 'opentela\[notebook\]'", _values.dumps, lambda: 1)


class Library(unittest.TestCase):
    def test_a_node_needs_nothing_else_to_import_it(self):
        with tempfile.NamedTemporaryFile(suffix=".zip") as file:
            file.write(base64.b64decode(_bundle.library(False)))
            file.flush()
            program = f"import sys; sys.path.insert(0, {file.name!r}); import opentela, opentela._worker; print(opentela.__file__)"
            said = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(".zip", said.stdout)


if __name__ == "__main__":
    unittest.main()
