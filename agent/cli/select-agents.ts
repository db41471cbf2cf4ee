/** Finds the agents of this user that a command refers to. */

import { type Flags, JSON_FLAG, UsageError } from '../../shared/command-line/index.ts';
import type { Env } from '../config/setting.ts';
import { type LocalAgent, localAgents } from '../host/control-client.ts';

export const SESSION_FLAG = {
  session: { value: 'PREFIX', help: 'select an agent by the first characters of its session' },
} as const satisfies Flags;
/** Flags and help of the read-only commands `status` and `models`. */
export const LOCAL_AGENTS_USAGE = {
  examples: `[--session PREFIX] [--json]

Asks all your agents on this machine, or the agent with a session that begins with PREFIX. In the table of status, * marks this agent.
While an engine loads, status shows for how long, and its last line of output. To wait in a script until all models are ready:
  until otela-agent models --json | jq -e 'length > 0 and all(.state == "ready")' > /dev/null; do sleep 5; done
In a running Slurm job:
  srun --jobid 4711 --overlap otela-agent status`,
  flags: { ...SESSION_FLAG, ...JSON_FLAG },
} as const;
/** Usage hint of commands with SESSION_FLAG. */
export const SESSION_HINT = {
  hint: ([word]: readonly string[]) => `; to select an agent, write --session ${word}`,
};

/**
 * The agents whose session begins with `prefix`; without a prefix all.
 * @throws UsageError if agents run here and none matches
 */
export async function selectAgents(prefix: string | undefined, env: Env): Promise<LocalAgent[]> {
  const agents = await localAgents(env);
  const meant = agents.filter(({ session }) => session.startsWith(prefix ?? ''));
  if (agents.length > 0 && meant.length === 0) {
    const names = agents.map(({ session }) => session).join(', ');
    throw new UsageError(
      `no agent on this machine has a session that begins with "${prefix}"; the sessions are ${names}`,
    );
  }
  return meant;
}

/**
 * Returns the only matching agent.
 * @throws UsageError if several match, because a command that changes something must not guess which of them is meant
 */
export async function selectOneAgent(prefix: string | undefined, env: Env): Promise<LocalAgent> {
  const found = await selectAgents(prefix, env);
  // Inside a job, prefer the job's own agent on this node, even if other agents of this user run here.
  const { SLURM_JOB_ID: job, SLURMD_NODENAME: node } = env;
  const own = found.filter(({ status }) => job && status.job?.id === job && status.job.node === node);
  const agents = own.length > 0 ? own : found;
  const [agent] = agents;
  if (!agent) throw new UsageError(NO_AGENT);
  if (agents.length > 1) {
    throw new UsageError(
      `several agents run here; select one with --session: ${agents.map(({ session }) => session).join(', ')}`,
    );
  }
  return agent;
}

export const NO_AGENT =
  'none of your agents answers on this machine; for a Slurm job, run the command on its node: srun --jobid J --overlap otela-agent status';
