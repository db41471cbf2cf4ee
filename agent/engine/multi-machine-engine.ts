/**
 * An engine that spans several machines of a job is one session. The agent next to the engine's HTTP server registers
 * it with the hardware of all its machines. The agents on the other ranks only supervise their part.
 */
import { commandWords, flagValue } from './engine-command.ts';

export interface EngineSpan {
  /**
   * `supervise`: this agent does not register the engine. It has a session only if it stores weights; the session then
   * shows no models and no hardware.
   */
  role: 'register' | 'supervise';
  /** Number of machines on which the engine runs. */
  nodes: number;
  /** Why this role was chosen, for the log. */
  reason?: string;
}

type Env = Readonly<Record<string, string | undefined>>;

const ALONE: EngineSpan = { role: 'register', nodes: 1 };

/**
 * Decides this agent's role by the first of these that is present: `--span-nodes` (rank from SLURM_PROCID, one task per
 * machine), vLLM's `--headless`, vLLM's and SGLang's `--nnodes N --node-rank R`, `ray start` without `--head`, vLLM on
 * Ray inside a job of several machines.
 */
export function engineSpan(command: readonly string[] | undefined, env: Env, spanNodes: boolean): EngineSpan {
  const words = commandWords(command ?? []);
  const nodes = positive(flagValue(words, '--nnodes')) ?? jobNodes(env);
  if (spanNodes) {
    const rank = integer(env.SLURM_PROCID) ?? integer(env.SLURM_NODEID) ?? 0;
    return { role: rank === 0 ? 'register' : 'supervise', nodes, reason: `--span-nodes, rank ${rank} of ${nodes}` };
  }
  if (words.includes('--headless')) return { role: 'supervise', nodes, reason: '--headless serves no HTTP' };
  const nnodes = positive(flagValue(words, '--nnodes'));
  if (nnodes !== undefined && nnodes > 1) {
    const rank = integer(flagValue(words, '--node-rank')) ?? 0;
    return { role: rank === 0 ? 'register' : 'supervise', nodes: nnodes, reason: `--node-rank ${rank} of ${nnodes}` };
  }
  const ray = words.findIndex((word) => word === 'ray' || word.endsWith('/ray'));
  const startsRay = ray >= 0 && words[ray + 1] === 'start';
  const serves = words.includes('serve') || words.some((word) => word.includes('api_server'));
  if (startsRay && !serves) return { role: 'supervise', nodes, reason: 'ray start serves no model' };
  if (flagValue(words, '--distributed-executor-backend') === 'ray' && nodes > 1) {
    return { role: 'register', nodes, reason: `a Ray engine that spans the ${nodes} nodes of the job` };
  }
  return ALONE;
}

function jobNodes(env: Env): number {
  // The step's number of machines takes precedence, because a job of 4 machines may run two engines of 2 machines each.
  return positive(env.SLURM_STEP_NUM_NODES) ?? positive(env.SLURM_JOB_NUM_NODES) ?? positive(env.SLURM_NNODES) ?? 1;
}

function positive(text: string | undefined): number | undefined {
  const value = integer(text);
  return value !== undefined && value > 0 ? value : undefined;
}

function integer(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,5}$/.test(text) ? Number(text) : undefined;
}
