import * as z from 'zod';
import { PLAN_ORIGINS_MAX } from '../../../shared/routing/region-shares.ts';
import { parseGatewayAnswer } from '../../live/live-nodes.ts';
import { GatewayRefusal, type PlannerGateway } from '../../live/planner-gateway.ts';
import type { LivePlan, PlannedOrigin } from './region-planner.ts';

interface PlanPublisherOptions {
  gateway: PlannerGateway;
  /** Name of this planner at the gateway. */
  planner: string;
  /** Time for which a plan is valid if no newer one follows. */
  holdsMs: number;
}

const PATH = '/admin/regions/plan';
const storedSchema = z.object({ planner: z.string(), sequence: z.number().int() });
/** The gateway's bounds on notes, on characters of a note and of a policy's name, and on warm counts. */
const [NOTES_MAX, NOTE_CHARS, POLICY_CHARS_MAX, WARM_MAX] = [32, 300, 64, 500];

/**
 * Sends plans to a gateway. A plan's number is one more than the last that the gateway stored, so that no clock decides
 * which plan is newer.
 */
export class PlanPublisher {
  readonly #options: PlanPublisherOptions;
  #sequence: number | undefined;

  constructor(options: PlanPublisherOptions) {
    this.#options = options;
  }

  /**
   * Returns the plan's number; undefined if there is nothing to send.
   *
   * @throws GatewayRefusal with status 409 while another planner's plan is valid
   */
  async send({ models, notes, policy, standings = [] }: LivePlan): Promise<number | undefined> {
    if (models.length === 0) return undefined;
    const { gateway, planner, holdsMs } = this.#options;
    this.#sequence ??= await this.#known();
    const sequence = this.#sequence + 1;
    try {
      await gateway.put(PATH, {
        planner,
        sequence,
        holds_ms: holdsMs,
        ...(policy === undefined ? {} : { policy: policy.slice(0, POLICY_CHARS_MAX) }),
        models: Object.fromEntries(
          models.map(({ model, regions, spill, origins }) => [
            model,
            {
              shares: Object.fromEntries(regions.map(({ region, share }) => [region, clampShare(share)])),
              spill,
              ...(origins.length < 2 ? {} : { origins: originRows(origins) }),
            },
          ]),
        ),
        warm: models
          .flatMap(({ model, regions }) => regions.map(({ region, warm }) => ({ region, model, replicas: warm })))
          .slice(0, WARM_MAX),
        notes: [...standings, ...notes].slice(0, NOTES_MAX).map((note) => note.slice(0, NOTE_CHARS)),
      });
    } catch (error) {
      // Reads the last number again before the next plan: another process may plan under the same name, or the answer
      // to the last plan was lost.
      if (error instanceof GatewayRefusal && error.status === 409) this.#sequence = undefined;
      throw error;
    }
    this.#sequence = sequence;
    return sequence;
  }

  async #known(): Promise<number> {
    const stored = parseGatewayAnswer(storedSchema, await this.#options.gateway.get(PATH), PATH);
    return stored.planner === this.#options.planner ? stored.sequence : 0;
  }
}

/** The rows of gateways with a region. The others use the model's shares. */
function originRows(origins: readonly PlannedOrigin[]): Record<string, unknown> {
  const named = origins.filter(({ origin }) => origin !== '').slice(0, PLAN_ORIGINS_MAX);
  return Object.fromEntries(
    named.map(({ origin, shares, spill }) => [
      origin,
      { shares: Object.fromEntries(Object.entries(shares).map(([to, share]) => [to, clampShare(share)])), spill },
    ]),
  );
}

/** Limits a share to the range 0 to 1, which rounding errors may exceed. */
function clampShare(share: number): number {
  return Math.min(1, Math.max(0, share));
}
