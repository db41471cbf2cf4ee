"""A gateway and nodes that run functions, as processes of this machine. They are the built programs, without packages."""

import atexit
import json
import os
import shlex
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
# How long a preempted node is away.
AWAY_S = 3


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


def processor_s():
    """Processor time of this process and all that it started, also of ended ones whose parents waited for them."""
    spent, children, tick = {}, {}, os.sysconf("SC_CLK_TCK")
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                # After the name, which may have spaces: the third field is the first.
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        spent[int(name)] = sum(map(int, fields[11:15])) / tick
        children.setdefault(int(fields[1]), []).append(int(name))
    waiting, total = [os.getpid()], 0.0
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total


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
        port, self.data = free_port(), os.path.join(self.folder, "gateway")
        self.url = f"http://127.0.0.1:{port}"
        self.gateway = self._start("otela-gateway", ["serve", "--port", str(port), "--data", self.data], {})
        until("the gateway's start", lambda: self.gateway.said("otela-gateway ready"))
        with open(os.path.join(self.data, "admin.key")) as file:
            self.admin_key = file.read().strip()
        self.project = self._admin("projects", {"name": "bench"})["id"]
        self.key = self._admin("keys", {"name": "bench", "project_id": self.project})["key"]
        self.token = os.path.join(self.folder, "token")
        with open(self.token, "w") as file:
            file.write(self._admin("join-tokens", {"provider": "lab", "cluster": "bench"})["token"])
        self.nodes, self.away = {}, []

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
        home, args, env = self._node(number, processes)
        shutil.rmtree(home, ignore_errors=True)
        for path in env.values():
            os.makedirs(path, mode=0o700)
        self.nodes[number] = self._start("otela-agent", args, {**env, "OTELA_MESH": "127.0.0.1"})

    def _node(self, number, processes):
        """The directory of a node, and the arguments and directories of its agent."""
        home = os.path.join(self.folder, f"node-{number}")
        flags = ["--gateway", self.url, "--token-file", self.token, "--allow-functions", self.project]
        flags += ["--functions-python", sys.executable, "--functions-loaded", str(processes), "--functions-sandbox", "off"]
        env = {name: os.path.join(home, name.lower()) for name in ("HF_HOME", "TMPDIR", "XDG_RUNTIME_DIR")}
        return home, ["start", *flags], env

    def kill_node(self, number):
        self.nodes.pop(number).kill()

    def preempt_node(self, number):
        """Ends a node without notice, if it is up. It comes back."""
        if number in self.nodes:
            self.kill_node(number)
            self.away.append((number, time.monotonic() + AWAY_S))

    def bring_back(self):
        """Starts the preempted nodes that were away long enough."""
        for number, at in [one for one in self.away if one[1] <= time.monotonic()]:
            self.start_node(number)
            self.away.remove((number, at))

    def kill_nodes(self):
        self.away.clear()
        for number in list(self.nodes):
            self.kill_node(number)


class SlurmCluster(Cluster):
    """Its nodes are jobs of the partition `spot`, each on a whole node of Slurm. Slurm preempts them, and starts them again."""

    def start_node(self, number, processes=1):
        home, args, env = self._node(number, processes)
        folders = " ".join(map(shlex.quote, env.values()))
        exports = " ".join(f"{name}={shlex.quote(path)}" for name, path in env.items())
        command = shlex.join([self.node, os.path.join(ROOT, "dist/otela-agent.js"), *args])
        script = f"rm -rf {shlex.quote(home)}\nmkdir -pm 700 {folders}\nexport OTELA_MESH=127.0.0.1 {exports}\nexec {command}\n"
        self.nodes[number] = self._submit(number, "spot", script)

    def _submit(self, number, partition, script):
        """The id of a job that takes all GPUs of a node. `number`: from 0, of Slurm's nodes n1 to n4."""
        gpus = (4, 4, 2, 4)[number]
        options = ["--parsable", f"--partition={partition}", f"--nodelist=n{number + 1}", f"--gres=gpu:{gpus}"]
        output = os.path.join(self.folder, f"job-{number}-%j.log")
        asked = ["sbatch", *options, f"--output={output}", "--open-mode=append", "--chdir=/tmp"]
        done = subprocess.run(asked, input=f"#!/bin/bash\n{script}", capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"sbatch: {done.stderr}")
        return done.stdout.strip()

    def _state(self, job):
        return subprocess.run(["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True).stdout.strip()

    def preempt_node(self, number):
        """A job of a partition with a higher priority takes the node for a while."""
        if self._state(self.nodes[number]) == "RUNNING":
            self._submit(number, "normal", f"sleep {AWAY_S}\n")

    def bring_back(self):
        pass

    def kill_node(self, number):
        job = self.nodes.pop(number)
        subprocess.run(["scancel", "--quiet", job], check=False)
        until(f"the end of job {job}", lambda: self._state(job) in ("", "CANCELLED"))
