import * as z from 'zod';
import type { Io } from '../../shared/terminal/io.ts';
import { type Observation, sessionWeights } from '../controller/round.ts';
import { SchedulerError } from '../errors.ts';
import { type Gateway, GatewayRefusal } from '../live/gateway.ts';
import type { Plan } from '../planner/types.ts';

/** Rules that a gateway takes for one model, less the one for all others. */
const SESSIONS_MAX = 499;
/** Passed on as they are. */
const publishedSchema = z.object({ kinds: z.array(z.unknown()).max(100).default([]) });

interface Rule {
  session?: string;
  weight: number;
}

/**
 * The plan's weights for the `weighted` policy: `PUT /admin/routing/{model}`. They name sessions, and a node that comes later is a new
 * one: without a rule for all others it would get nothing.
 */
export class WeightSender {
  readonly #gateway: Gateway;
  /** By model: what the gateway took. */
  readonly #sent = new Map<string, string>();

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  /** Says nothing of what did not change. A gateway that cannot take them is told about, not fatal. */
  async send(plan: Plan, observation: Observation, yes: boolean, io: Io): Promise<void> {
    for (const { model } of plan.models) {
      const rules = rulesOf(plan, observation, model);
      const body = JSON.stringify(rules);
      if (rules.length === 0 || this.#sent.get(model) === body) continue;
      const text = `weights of ${model}: ${rules.map(worded).join(', ')}`;
      if (!yes) io.out(`would set ${text}`);
      try {
        if (yes) await this.#put(model, rules);
        this.#sent.set(model, body);
        if (yes) io.out(`done: ${text}`);
      } catch (error) {
        io.out(`FAILED: weights of ${model}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  }

  /** Weights that come without kinds take the model's kinds away, and with them its counts by kind. */
  async #put(model: string, weights: readonly Rule[]): Promise<void> {
    const path = `/admin/routing/${encodeURIComponent(model)}`;
    const kinds = await this.#kinds(path);
    await this.#gateway.put(path, kinds.length === 0 ? { weights } : { weights, kinds });
  }

  async #kinds(path: string): Promise<readonly unknown[]> {
    try {
      const read = publishedSchema.safeParse(await this.#gateway.get(path));
      if (read.success) return read.data.kinds;
    } catch (error) {
      if (error instanceof GatewayRefusal && error.status === 404) return [];
      throw error;
    }
    throw new SchedulerError('gateway', `${path} did not answer with weights and kinds`);
  }
}

const worded = ({ session, weight }: Rule) => `${session?.slice(0, 8) ?? 'any other'} ${weight.toFixed(3)}`;

function rulesOf(plan: Plan, observation: Observation, model: string): Rule[] {
  const all = sessionWeights(plan, observation, model);
  if (all.length === 0) return [];
  const mean = all.reduce((sum, { weight }) => sum + weight, 0) / all.length;
  // Farthest from the mean first, where not all can be named.
  const named = [...all].sort((a, b) => Math.abs(b.weight - mean) - Math.abs(a.weight - mean)).slice(0, SESSIONS_MAX);
  return [...named.sort((a, b) => (a.session < b.session ? -1 : 1)), { weight: mean }];
}
