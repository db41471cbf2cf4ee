/** `otela-agent start`: joins the gateways with this machine's engine and runs until it ends. */

import { type Command, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { EXIT_ENGINE } from '../config/exit.ts';
import { readSettingValues } from '../config/setting-sources.ts';
import { START_FLAGS } from '../config/settings.ts';
import { startConfig } from '../config/start-config.ts';
import { reexecInstalled } from '../host/installed-program.ts';
import { type FaultSource, processFaults } from '../life/faults.ts';
import { Lifecycle } from '../life/lifecycle.ts';
import { processSignals, type SignalSource } from '../life/signals.ts';
import { type AdmissionOptions, requestAdmission, type TunnelAdmission } from '../tunnel/admission.ts';
import { openTunnel } from '../tunnel/tunnel.ts';
import type { Tunnel, TunnelOptions } from '../tunnel/types.ts';
import type { CommandContext } from './command-context.ts';
import { waitForFlush } from './io.ts';

/** The agent's connections to the outside; passed in so that a test can replace a gateway. */
export interface AgentDependencies {
  openTunnel(options: TunnelOptions): Tunnel;
  admit(options: AdmissionOptions): Promise<TunnelAdmission>;
  signals: SignalSource;
  faults: FaultSource;
  /** Time after which an engine that is not our child and does not listen counts as stopped. */
  engineGoneMs?: number;
  /** See Lifecycle. */
  willCommand?: readonly string[];
  /** True if sessions join the mesh; default true. */
  joinMesh?: boolean;
}

const REAL: AgentDependencies = { openTunnel, admit: requestAdmission, signals: processSignals, faults: processFaults };

export const START_COMMAND: Command<CommandContext> = {
  summary: 'run an engine (or find one that runs) and join the gateways',
  examples: `[flags] [-- COMMAND…]

In a job script, vLLM on port 8000:
  exec otela-agent start --gateway https://gw.example.org --token-file ~/.otela-token -- vllm serve Qwen/Qwen3-8B

Another port is found in the command; for other engines say it:
  otela-agent start … -- vllm serve NAME --port 8123
  otela-agent start … --engine-port 8080 -- llama-server -m model.gguf

A line for the shell is one quoted argument:
  otela-agent start … -- "source venv/bin/activate && exec vllm serve NAME"

An engine that another program started, and its key:
  otela-agent start … --engine-url http://127.0.0.1:8000/prefix --engine-key-file key

No engine at all joins idle:
  otela-agent start --gateway https://gw.example.org

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
  says so to the gateways, ends what is left of the engine and exits with 70. An engine of another program that is stopped
  ends its session only: the agent waits idle for the next one.`,
  flags: START_FLAGS,
  run: startCommand,
};

async function startCommand(argv: readonly string[], { env, io, outside }: CommandContext): Promise<number> {
  const hint = (words: readonly string[]) =>
    `; the engine's command comes after --, as in: otela-agent start -- ${words.join(' ')}`;
  const { given, command } = parseLine(argv, START_FLAGS, { hint });
  if (command?.length === 0) throw new UsageError('no command after -- (leave the -- out to join without an engine)');
  const config = startConfig(readSettingValues(given, env), command, env);
  for (const warning of config.warnings) io.log(`warning: ${warning}`);
  const lifecycle = new Lifecycle({
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
  io.log(`could not begin anew: ${why.message}`);
  return EXIT_ENGINE;
}
