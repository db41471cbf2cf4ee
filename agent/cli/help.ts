/** Help that teaches by example. */

import { SETTINGS } from '../config/settings.ts';
import { COMMANDS } from './commands.ts';

export function helpFor(command: string): string {
  switch (command) {
    case 'start':
      return START.replace('FLAGS', flagTable());
    case 'status':
    case 'models':
      return WATCHING;
    case 'logs':
      return LOGS;
    case 'metrics':
      return METRICS;
    case 'drain':
      return DRAIN;
    case 'doctor':
      return DOCTOR;
    case 'sbatch':
      return SBATCH;
    case 'config':
      return CONFIG;
    case 'completion':
      return COMPLETION;
    default:
      return OVERVIEW.replace('COMMANDS', commandTable());
  }
}

function commandTable(): string {
  const rows = Object.entries(COMMANDS).filter(([name]) => name !== 'help');
  return rows.map(([name, { summary }]) => `  ${name.padEnd(10)}  ${summary}`).join('\n');
}

function flagTable(): string {
  const rows = SETTINGS.filter(({ flag }) => flag !== '').map((setting) => {
    const otherwise = 'otherwise' in setting ? ` [${setting.otherwise}]` : '';
    return [`--${setting.flag} ${setting.value}`.trimEnd(), `${setting.help}${otherwise}`];
  });
  rows.push(['--process COMMAND…', 'the same as -- COMMAND…']);
  return rows.map(([flag = '', help = '']) => `  ${flag.padEnd(28)}  ${help}`).join('\n');
}

const OVERVIEW = `otela-agent serves a model engine on this machine to OpenTela gateways. It needs outbound 443 only.

  otela-agent start --gateway https://gw.example.org --token-file ~/.otela-token -- vllm serve Qwen/Qwen3-8B

COMMANDS

otela-agent COMMAND --help tells more.

Exit codes: 0 done, 2 wrong use or configuration, 69 refused by the gateway, 70 engine failed, 143 ended by a signal after draining.`;

const COMPLETION = `otela-agent completion bash|zsh|fish

Prints what the shell needs to complete commands, flags and files:
  echo 'source <(otela-agent completion bash)' >> ~/.bashrc
  echo 'source <(otela-agent completion zsh)' >> ~/.zshrc
  otela-agent completion fish > ~/.config/fish/completions/otela-agent.fish`;

const DOCTOR = `otela-agent doctor [flags of start] [--json] [-- COMMAND…]

Says what would stop an agent here and what to do about it, without joining anything:
  otela-agent doctor --gateway https://gw.example.org --token-file ~/.otela-token -- vllm serve Qwen/Qwen3-8B

Looks at the settings, the way to each gateway (proxies included), the clock, the join token's file, GPUs, the Slurm job, the engine's
program or address, and the state directory. Exit code 0 where nothing is in the way, 70 where something is.`;

const SBATCH = `otela-agent sbatch --model NAME [flags] [-- ENGINE FLAGS…]

Prints a job script; look at it, then submit it:
  otela-agent sbatch --gateway https://gw.example.org --model Qwen/Qwen3-8B --gpus 1 --time 04:00:00 > job.sh && sbatch job.sh
  otela-agent sbatch --gateway https://gw.example.org --model Qwen/Qwen3-8B --submit

  --model NAME              as the engine knows it
  --engine vllm|sglang      [vllm]
  --gpus N                  on one node [1]
  --partition, --account, --qos NAME  [the cluster's defaults]
  --constraint FEATURES     of the node, as Slurm writes it: 'a100|h100'
  --mem AMOUNT              of the node's memory, such as 64G [the partition's default]
  --cpus N                  CPU cores for the engine [the partition's default]
  --time LIMIT              [04:00:00]
  --sbatch-option OPTION    one more option of sbatch, such as reservation=maint or exclusive; repeatable
  --container none|apptainer|enroot   [none]
  --image FILE              of the container [vllm.sif; for enroot vllm.sqsh]
  --gateway URL             or OTELA_GATEWAY, or the configuration file
  --token-file FILE         the same; read in the job, it is not in the script [~/.otela-token]
  --config FILE             the configuration file
  --submit                  runs sbatch with it and prints what that says
  --json                    {"script"}, with --submit {"job", "script"}`;

const START = `otela-agent start [flags] [-- COMMAND…]

In a job script, vLLM on port 8000:
  exec otela-agent start --gateway https://gw.example.org --token-file ~/.otela-token -- vllm serve Qwen/Qwen3-8B

Another port is found in the command; for other engines say it:
  otela-agent start … -- vllm serve NAME --port 8123
  otela-agent start … --engine-port 8080 -- llama-server -m model.gguf

A line for the shell is one quoted argument:
  otela-agent start … -- "source venv/bin/activate && exec vllm serve NAME"

An engine that somebody else started, and its key:
  otela-agent start … --engine-url http://127.0.0.1:8000/prefix --engine-key-file key

No engine at all joins idle:
  otela-agent start --gateway https://gw.example.org

FLAGS

Each flag is also a variable, OTELA_GATEWAY for --gateway and so on (lists by commas), and a line "gateway = …" in the
configuration file. Flags win over variables, variables over the file. OTELA_ENGINE_KEY holds the engine's own API key.
The command gets the environment without OTELA_*; everything after -- or --process reaches it as it is.

One engine over several nodes
  One task per node (srun --ntasks-per-node=1). The agent whose command says --node-rank 0 registers the whole engine,
  with its own hardware times the number of nodes; those with --node-rank 1 and above, with --headless, and those that run
  "ray start", only watch over their part. vLLM with --distributed-executor-backend ray counts all nodes of the job.
  Where the command does not show its rank, --span-nodes takes it from SLURM_PROCID.

Ending
  SIGTERM, SIGINT and SIGHUP drain: no new requests, running ones may finish, then the engine gets SIGTERM and, 10 s
  later, SIGKILL. The wait is at most 27 s, in a Slurm job KillWait (scontrol show config) less 3 s.
  SIGUSR1 (sbatch --signal=B:USR1@120), otela-agent drain, an order of the gateway (otela-gateway nodes drain) and
  --drain-before the job's end wait longer: until 10 s before the job's end, 10 minutes where that is unknown.
  --drain-timeout replaces these limits, but not the job's end.
  A second signal, a second or more after the first, ends everything at once.
  When the engine ends by itself, or prints that it is broken (a CUDA error, a NCCL time-out, --fatal-pattern), the agent
  says so to the gateways, ends what is left of the engine and exits with 70. An engine of somebody else's that is stopped
  ends its session only: the agent waits idle for the next one.`;

const WATCHING = `otela-agent status [--session PREFIX] [--json]
otela-agent models [--session PREFIX] [--json]

Asks every agent of yours that runs on this machine, or the one whose session begins with PREFIX. In status * marks this agent in the network.
While an engine loads, status shows since when, and its last line. For a script, until all models are there:
  until otela-agent models --json | jq -e 'length > 0 and all(.state == "ready")' > /dev/null; do sleep 5; done
Into a running Slurm job:
  srun --jobid 4711 --overlap otela-agent status`;

const LOGS = `otela-agent logs [--session PREFIX] [--follow] [--json]

The engine's last 256 KiB of output, byte for byte; with --follow also what comes. With --json each line, cut at 4 KiB, is {"session", "line"}.
  otela-agent logs | tail -50`;

const METRICS = `otela-agent metrics [--session PREFIX] [--json]

The figures of the agent, its engine and its tunnels in Prometheus' text format. For node_exporter's textfile collector:
  otela-agent metrics > /var/lib/node_exporter/otela.prom
With --json the same text, as {"session", "metrics"}. Over the network, in clear: start --metrics HOST:PORT.`;

const DRAIN = `otela-agent drain [--session PREFIX] [--wait] [--json]

The agent takes no new requests, lets the running ones finish, ends the engine and exits with 0. --wait returns after that.
  otela-agent drain --session 6rcohdmy --wait`;

const CONFIG = `otela-agent config [flags of start] [--json]

Shows each setting, its value and where it came from. Secrets are shown as (set).
  OTELA_REGION=eu-central otela-agent config --tier stable

The file (--config, OTELA_CONFIG, else ~/.config/otela-agent/config) has one setting per line:
  gateway = https://gw.example.org
  token-file = ~/.otela-token
  label = project=a123`;
