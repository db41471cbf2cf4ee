"""A gateway and nodes that run functions, as processes of this machine. They are the built programs, without packages."""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, found, limit_s=START_S):
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        if found():
            return
        time.sleep(0.05)
    raise SystemExit(f"{what} did not happen within {limit_s} s")


class Program:
    """A program with all processes that it starts."""

    def __init__(self, command, log, env):
        with open(log, "ab") as output:
            self.child = subprocess.Popen(command, stdout=output, stderr=output, env=env, start_new_session=True)
        self.log = log
        atexit.register(self.kill)

    def kill(self):
        """As a job that is preempted without notice."""
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()

    def said(self, text):
        if self.child.poll() is not None:
            with open(self.log, errors="replace") as log:
                raise SystemExit(f"{self.child.args[1]} ended: {log.read()[-2000:]}")
        with open(self.log, errors="replace") as log:
            return text in log.read()


class Cluster:
    def __init__(self, node):
        """node: path of Node.js."""
        self.node = node
        self.folder = tempfile.mkdtemp(prefix="otela-bench-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        port, data = free_port(), os.path.join(self.folder, "gateway")
        self.url = f"http://127.0.0.1:{port}"
        self.gateway = self._start("otela-gateway", ["serve", "--port", str(port), "--data", data], {})
        until("the gateway's start", lambda: self.gateway.said("otela-gateway ready"))
        with open(os.path.join(data, "admin.key")) as file:
            self.admin_key = file.read().strip()
        self.project = self._admin("projects", {"name": "bench"})["id"]
        self.key = self._admin("keys", {"name": "bench", "project_id": self.project})["key"]
        self.token = os.path.join(self.folder, "token")
        with open(self.token, "w") as file:
            file.write(self._admin("join-tokens", {"provider": "lab", "cluster": "bench"})["token"])
        self.nodes = {}

    def _start(self, name, args, more):
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME") if name in os.environ}
        log = os.path.join(self.folder, f"{name}-{time.monotonic_ns()}.log")
        return Program([self.node, os.path.join(ROOT, "dist", f"{name}.js"), *args], log, {**env, **more})

    def _admin(self, path, body):
        headers = {"authorization": f"Bearer {self.admin_key}", "content-type": "application/json"}
        asked = urllib.request.Request(f"{self.url}/admin/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read())

    def start_node(self, number, processes=1):
        """A node with an empty disk."""
        home = os.path.join(self.folder, f"node-{number}")
        shutil.rmtree(home, ignore_errors=True)
        folders = {name: os.path.join(home, name) for name in ("cache", "tmp", "run")}
        for path in folders.values():
            os.makedirs(path, mode=0o700)
        flags = ["--gateway", self.url, "--token-file", self.token, "--allow-functions", self.project]
        flags += ["--functions-python", sys.executable, "--functions-loaded", str(processes), "--functions-sandbox", "off"]
        env = {"HF_HOME": folders["cache"], "TMPDIR": folders["tmp"], "XDG_RUNTIME_DIR": folders["run"], "OTELA_MESH": "127.0.0.1"}
        self.nodes[number] = self._start("otela-agent", ["start", *flags], env)

    def kill_node(self, number):
        self.nodes.pop(number).kill()

    def kill_nodes(self):
        for number in list(self.nodes):
            self.kill_node(number)
