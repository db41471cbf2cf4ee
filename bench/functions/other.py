"""The same functions with Parsl's HighThroughputExecutor (PyPI: parsl). Its processes live as long as the executor."""

import os
import sys

import model

# The model of this process, by the context for which it was loaded.
_loaded = {}


def empty(value):
    return value


def pervasive(source, device, log, seeds):
    """As users of Parsl keep a model: in a global variable of the process."""
    if source not in _loaded:
        _loaded[source] = model.read(source, device, log)
    return model.infer(_loaded[source], seeds)


class Parsl:
    """Workers on this machine."""

    def __init__(self, folder, processes):
        import parsl
        from parsl.config import Config
        from parsl.executors import HighThroughputExecutor
        from parsl.providers import LocalProvider

        here = os.path.dirname(os.path.abspath(__file__))
        # Its workers find this module, and its programs those of this Python.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
        executor = HighThroughputExecutor(
            label="bench",
            address="127.0.0.1",
            max_workers_per_node=processes,
            cores_per_worker=0.01,
            encrypted=False,
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
        self.kernel = parsl.load(Config(executors=[executor], run_dir=os.path.join(folder, "parsl"), usage_tracking=0))
        self.empty, self.pervasive = (parsl.python_app(one, data_flow_kernel=self.kernel) for one in (empty, pervasive))
        self.empty(0).result()

    def close(self):
        import parsl

        self.kernel.cleanup()
        parsl.clear()
