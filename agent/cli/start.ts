/** `otela-agent start`: joins the gateways with this machine's engine and runs until the node ends. */

import { type Command, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { START_FLAGS } from '../config/all-settings.ts';
import { EXIT_ENGINE } from '../config/exit-codes.ts';
import { readSettingValues } from '../config/setting-sources.ts';
import { startConfig } from '../config/start-config.ts';
import { reexecInstalled } from '../host/own-executable.ts';
import { AgentRun } from '../life/agent-run.ts';
import { processSignals } from '../life/ending-signals.ts';
import { processFaults } from '../life/uncaught-errors.ts';
import { requestAdmission } from '../tunnel/gateway-admission.ts';
import { openTunnel } from '../tunnel/tunnel.ts';
import { waitForFlush } from './agent-io.ts';
import type { AgentDependencies, CommandContext } from './command-context.ts';

const REAL: AgentDependencies = { openTunnel, admit: requestAdmission, signals: processSignals, faults: processFaults };

export const START_COMMAND: Command<CommandContext> = {
  summary: 'start an engine (or use one that runs) and join the gateways',
  examples: `[flags] [-- COMMAND…]

In a job script, with vLLM on port 8000:
  exec otela-agent start --gateway https://gw.example.org --token-file ~/.otela-token -- vllm serve Qwen/Qwen3-8B

The agent reads another port from the command of vLLM or SGLang; for other engines, pass it:
  otela-agent start … -- vllm serve NAME --port 8123
  otela-agent start … -- llama-server -m model.gguf --metrics

A command line for the shell is one quoted argument:
  otela-agent start … -- "source venv/bin/activate && exec vllm serve NAME"

An engine that another program started, with its API key:
  otela-agent start … --engine-url http://127.0.0.1:8000/prefix --engine-key-file key

Without an engine, the node joins idle:
  otela-agent start --gateway https://gw.example.org

Each flag is also an environment variable (OTELA_GATEWAY for --gateway; commas separate a list) and a line of the
configuration file (gateway = …). Flags override variables, and variables override the file. OTELA_ENGINE_KEY is the
API key of the engine. The command gets the environment without OTELA_*, and everything after -- or --process unchanged.

One engine over several nodes
  Start one task per node (srun --ntasks-per-node=1). The agent with --node-rank 0 in its command registers the whole
  engine, with its hardware times the number of nodes. Agents with --node-rank 1 and above, with --headless, or with
  "ray start" only watch their part. vLLM with --distributed-executor-backend ray counts all nodes of the job.
  If the command does not contain the rank, --span-nodes reads it from SLURM_PROCID.

Ending
  SIGTERM, SIGINT and SIGHUP drain: the node takes no new requests, and running requests may finish. Then the engine gets
  SIGTERM and, 10 s later, SIGKILL. The wait is at most 27 s; in a Slurm job, KillWait (scontrol show config) minus 3 s.
  SIGUSR1 (sbatch --signal=B:USR1@120), otela-agent drain, otela-gateway nodes drain and --drain-before wait longer:
  until 10 s before the end of the job, or 10 minutes if that time is unknown.
  --drain-timeout replaces these limits, except the end of the job.
  A second signal, at least one second after the first, ends everything immediately.
  If the engine exits, or prints a fatal error (a CUDA error, a NCCL timeout, --fatal-pattern), the agent reports this to
  the gateways, ends all processes of the engine and exits with 70. If an engine that another program started stops, only
  its session ends, and the agent waits idle for the next engine.`,
  flags: START_FLAGS,
  run: startCommand,
};

async function startCommand(argv: readonly string[], { env, io, outside }: CommandContext): Promise<number> {
  const hint = (words: readonly string[]) =>
    `; the engine's command comes after --, as in: otela-agent start -- ${words.join(' ')}`;
  const { given, command } = parseLine(argv, START_FLAGS, { hint });
  if (command?.length === 0)
    throw new UsageError('there is no command after -- (omit the -- to join without an engine)');
  const config = startConfig(readSettingValues(given, env), command, env);
  for (const warning of config.warnings) io.log(`warning: ${warning}`);
  const lifecycle = new AgentRun({
    ...REAL,
    ...outside,
    config,
    env,
    stdout: io.stdout,
    stderr: io.stderr,
    log: io.log,
  });
  const code = await lifecycle.run();
  if (!lifecycle.restarts) return code;
  await Promise.all([waitForFlush(io.stdout), waitForFlush(io.stderr)]);
  const why = reexecInstalled(env);
  io.log(`could not start again: ${why.message}`);
  return EXIT_ENGINE;
}
