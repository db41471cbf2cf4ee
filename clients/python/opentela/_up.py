"""Serves a model from your own cluster for the time of a `with` block, by the command `otela up`."""

import json
import shutil
import signal
import subprocess
from contextlib import contextmanager

from ._errors import OtelaError


@contextmanager
def up(model, host=None, *, command=None, leave=False, otela="otela", **flags):
    """Yields an `openai.OpenAI` for `model`, which `otela up` serves from the login node `host`.

    The job ends with the block. With `leave=True` it continues, and so does a job that was there before. Other flags are those of
    `otela up`, with underscores: `gpus=2`, `time="08:00:00"`, `setup=["module load vllm"]`, `keep="3d"`, `cold=True`.
    `command`: the words of the engine's command, with {{port}}.
    """
    try:
        import openai
    except ImportError as error:
        raise OtelaError("up() needs OpenAI's SDK: pip install openai") from error
    program = shutil.which(otela)
    if program is None:
        raise OtelaError(f"there is no program {otela}: install it, or give its path: up(..., otela='/path/of/otela')")
    words = _words({"host": host, "rm": not leave, **flags})
    args = [program, "up", model, "--json", *words, *(["--", *command] if command else [])]
    # ssh may ask for a password in the terminal. Progress and errors go to the error output of this program.
    running = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
    try:
        line = running.stdout.readline()
        if line == "":
            raise OtelaError(f"otela up ended with exit code {running.wait()}; its last lines say why")
        ready = json.loads(line)
        with openai.OpenAI(base_url=ready["url"], api_key=ready["api_key"]) as client:
            yield client
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
        running.wait()
        running.stdout.close()


def _words(flags):
    """The words of a command line: `gpus=2` is `--gpus=2`, a list repeats its flag, True is the flag alone."""
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                yield flag
            elif one is not False and one is not None:
                # One word, so that a value that begins with a dash is no flag.
                yield f"{flag}={one}"
