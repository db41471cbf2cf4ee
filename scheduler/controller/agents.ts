import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { SchedulerError } from '../errors.ts';
import type { PlannerGateway } from '../live/gateway.ts';
import { knownModel, type LiveDeployments, type LiveNode, liveNodes } from '../live/nodes.ts';
import { agentPoolId, agentPools, choose, Offers } from '../live/offers.ts';
import type { Parallelism } from '../roofline/parallelism.ts';
import type { Pool } from '../solver/problem.ts';
import type { ControllerState } from './state.ts';

type Job = ControllerState['jobs'][number];

export type JobState = 'waiting' | 'running' | 'gone';

/** Where replicas are started and ended. */
export type AgentSide = Pick<Agents, 'pools' | 'deployed' | 'states' | 'start' | 'stop'>;

/** A deployment that was agreed to has its session within this, unless no gateway admits it. */
const APPEARS_WITHIN_MS = 90_000;
/** What a gateway gives where no other time is said. */
const DRAIN_MS = 60_000;
/** A node that was told to end its deployment drains first and then joins idle. */
const REJOINS_WITHIN_MS = 30_000;
/** A round waits so long for a node that drains; longer, and a later round finds it: streams of an hour must not keep the plan from being followed. */
const WAIT_MAX_MS = DRAIN_MS + REJOINS_WITHIN_MS;
const LOOK_EVERY_MS = 1_000;
/** Begins the ids of deployments that a factory orders. */
const FACTORY_PREFIX = 'otela-';
/** Nodes of one pool that are asked in turn when one refuses. Another caller may just have given the refusing node a deployment. */
const TRIES = 3;

interface AgentsOptions {
  gateway: PlannerGateway;
  catalogue: HardwareCatalogue;
  /** Wall clock, ms. */
  now: () => number;
  log: (line: string) => void;
  /** How long a replica that ends may finish what runs; streams that may then go on at another one. */
  drainMs?: number;
  wait?: (ms: number) => Promise<unknown>;
}

/** Starts and ends replicas on agents that wait for deployments. */
export class Agents {
  readonly #options: AgentsOptions;
  readonly #offers: Offers;
  readonly #wait: (ms: number) => Promise<unknown>;
  /** Given something in this process: the registry may still show them idle. */
  readonly #given = new Set<string>();
  /** Pools in which a node was told to end its deployment: until when the round waits for it, and when it is idle at the latest. */
  readonly #freed = new Map<string, { waitMs: number; idleMs: number }>();

  constructor(options: AgentsOptions) {
    this.#options = options;
    this.#offers = new Offers(options.gateway);
    this.#wait = options.wait ?? ((ms) => sleep(ms));
  }

  /** Pools of all nodes that this controller may deploy to, or has. */
  async pools(nodes: readonly LiveNode[], state: ControllerState): Promise<Pool[]> {
    const ours = new Set(state.jobs.map(({ id }) => id));
    const mine = nodes.filter(
      ({ accepts, deployment }) => accepts || (deployment !== undefined && ours.has(deployment)),
    );
    const offers = await this.#offers.of(mine, this.#options.log);
    return withJobs(
      agentPools(mine, offers),
      mine.filter(({ session }) => offers.has(session)),
      state,
    );
  }

  /** Replicas on nodes that run a deployment of a factory. A plan may move them, since the factory follows it. */
  async deployed(nodes: readonly LiveNode[]): Promise<Job[]> {
    const ordered = nodes.filter(
      ({ deployment, models }) => deployment?.startsWith(FACTORY_PREFIX) === true && models.length > 0,
    );
    const offers = await this.#offers.of(ordered, this.#options.log);
    return ordered.flatMap((node): Job[] => {
      const [{ deployment: id, models, gpus: tp }, here] = [node, offers.get(node.session)];
      const model = knownModel(this.#options.catalogue, models[0] ?? '')?.id;
      if (id === undefined || model === undefined || here === undefined) return [];
      return [{ id, model, pool: agentPoolId(node, here), tp, started_at: '', seen: true }];
    });
  }

  /** One that nobody sees any more has ended; one that was begun a moment ago, or that is only silent, has not. */
  states(jobs: readonly Job[], { there, failed }: LiveDeployments): Map<string, JobState> {
    const now = this.#options.now();
    return new Map(
      jobs.map(({ id, started_at, seen }): [string, JobState] => {
        if (there.has(id)) return [id, 'running'];
        if (failed.has(id)) return [id, 'gone'];
        return [id, !seen && now - Date.parse(started_at) < APPEARS_WITHIN_MS ? 'waiting' : 'gone'];
      }),
    );
  }

  /** The deployment's id. @throws SchedulerError draining where a node of the pool will take it, launcher where none does */
  async start(pool: string, model: string, spread: Parallelism): Promise<string> {
    const refused: string[] = [];
    const { now } = this.#options;
    const freed = this.#freed.get(pool);
    for (;;) {
      for (const node of await this.#idle(pool)) {
        if (refused.length >= TRIES) break;
        const answer = await this.#order(node, model, spread);
        if ('id' in answer) return answer.id;
        refused.push(answer.refusal);
      }
      if (refused.length > 0) throw new SchedulerError('launcher', refused.join('; '));
      const at = now();
      if (freed === undefined || at >= freed.idleMs)
        throw new SchedulerError('launcher', `no idle node is left in ${pool}`);
      if (at >= freed.waitMs) {
        const seconds = Math.ceil((freed.idleMs - at) / 1e3);
        throw new SchedulerError('draining', `a node of ${pool} still finishes what runs, for ${seconds} s at most`);
      }
      await this.#wait(LOOK_EVERY_MS);
    }
  }

  async #idle(pool: string): Promise<LiveNode[]> {
    const { gateway, catalogue, log } = this.#options;
    const nodes = await liveNodes(gateway, catalogue, () => {});
    const idle = nodes.filter(({ accepts, session }) => accepts && !this.#given.has(session));
    const offers = await this.#offers.of(idle, log);
    return idle
      .filter((node) => agentPoolId(node, offers.get(node.session) ?? []) === pool)
      .sort((a, b) => (a.session < b.session ? -1 : 1));
  }

  async #order(node: LiveNode, model: string, spread: Parallelism): Promise<{ id: string } | { refusal: string }> {
    const { gateway } = this.#options;
    const offers = (await this.#offers.of([node], this.#options.log)).get(node.session) ?? [];
    const choice = choose(offers, model, spread, node.gpus);
    if (choice === undefined) return { refusal: `no template of node ${node.session.slice(0, 8)} takes it` };
    const id = `plan-${randomBytes(8).toString('hex')}`;
    this.#given.add(node.session);
    try {
      await gateway.put(`/admin/nodes/${node.session}/deployment`, { id, ...choice });
      return { id };
    } catch (error) {
      if (!(error instanceof SchedulerError)) throw error;
      // Whether it arrived may not be known: then it is there under its id, and nobody's. The registry tells.
      if (await this.#appeared(id)) return { id };
      return { refusal: error.message };
    }
  }

  async #appeared(id: string): Promise<boolean> {
    try {
      const { gateway, catalogue } = this.#options;
      return (await liveNodes(gateway, catalogue, () => {})).some(({ deployment }) => deployment === id);
    } catch (error) {
      if (error instanceof SchedulerError) return false;
      throw error;
    }
  }

  /** Its node drains and joins idle. @throws SchedulerError */
  async stop(id: string, pool: string): Promise<void> {
    const { gateway, catalogue, drainMs = DRAIN_MS } = this.#options;
    const node = (await liveNodes(gateway, catalogue, () => {})).find(({ deployment }) => deployment === id);
    if (node === undefined)
      throw new SchedulerError('launcher', `no session of deployment ${id} can be reached now; try again`);
    await gateway.delete(`/admin/nodes/${node.session}/deployment?drain_ms=${drainMs}`);
    const at = this.#options.now();
    this.#freed.set(pool, {
      waitMs: at + Math.min(drainMs + REJOINS_WITHIN_MS, WAIT_MAX_MS),
      idleMs: at + drainMs + REJOINS_WITHIN_MS,
    });
  }
}

/** A replica that was begun a moment ago has a node between two sessions, which counts. */
function withJobs(pools: readonly Pool[], nodes: readonly LiveNode[], { jobs }: ControllerState): Pool[] {
  const shown = new Set(nodes.map(({ deployment }) => deployment));
  const hidden = jobs.filter((job) => !shown.has(job.id));
  return pools.map((pool) => ({
    ...pool,
    nodes: pool.nodes + hidden.filter((job) => job.pool === pool.id).length,
  }));
}
