/**
 * A model with a job only while requests need it (`--cold`). The gateway learns of the model as it learns of a factory's
 * models, so requests wait for the start, and the page shows its state.
 */
import { GatewayExchange } from '../../factory/demand/gateway-exchange.ts';
import { EXCHANGE_WAIT_MAX_MS, type ModelDemand, type ModelState } from '../../shared/factory/factory-exchange.ts';
import type { ChainAction, ChainNode } from './job-chain.ts';
import type { RunJob } from './run-job-list.ts';

/** Name of the host in reports. */
const CLUSTER = 'up';

interface ColdModelOptions {
  /** URL of the gateway on this machine. */
  gateway: string;
  /** File with the factory token. */
  tokenFile: string;
  /** Name of the run's factory at the gateway. */
  factory: string;
  model: string;
  gpus: number;
  /** Called if the gateway refuses the token. */
  refused(why: string): void;
}

export interface ColdDemand {
  /** False if the gateway has not answered for a while. */
  isKnown: boolean;
  /** Undefined: there is no request. */
  requests: ModelDemand | undefined;
  /** Milliseconds since each node's last request, by session. */
  idleMs: ReadonlyMap<string, number>;
}

export class ColdModel {
  readonly #options: ColdModelOptions;
  readonly #exchange: GatewayExchange;

  constructor(options: ColdModelOptions) {
    this.#options = options;
    const { gateway, tokenFile, refused } = options;
    this.#exchange = new GatewayExchange({ gateway, tokenFile, now: Date.now, refused });
  }

  open(): void {
    this.report(undefined, false, undefined);
    this.#exchange.open(() => {});
  }

  close(): Promise<void> {
    return this.#exchange.close();
  }

  get demand(): ColdDemand {
    const { demand, nodes } = this.#exchange.latest(Date.now());
    return {
      isKnown: nodes !== undefined,
      requests: demand.get(this.#options.model),
      idleMs: new Map(nodes?.map(({ session, idle_ms: idleMs }) => [session, idleMs])),
    };
  }

  /** @param readyMs how long the last start took */
  report(job: RunJob | undefined, isReady: boolean, readyMs: number | undefined): void {
    const { factory, model, gpus } = this.#options;
    const state: ModelState = isReady
      ? 'ready'
      : job === undefined
        ? 'cold'
        : job.state === 'pending'
          ? 'queued'
          : 'starting';
    const [pending, running] = [job?.state === 'pending' ? 1 : 0, job?.state === 'running' ? 1 : 0];
    this.#exchange.report({
      version: 1,
      factory,
      config_revision: '',
      wait_ms: EXCHANGE_WAIT_MAX_MS,
      models: [
        {
          id: model,
          state,
          min: 0,
          max: 1,
          pending,
          running,
          ready: isReady ? 1 : 0,
          ...(readyMs === undefined ? {} : { estimate_ms: readyMs }),
        },
      ],
      jobs:
        job === undefined ? [] : [{ cluster: CLUSTER, id: job.id, model, state: jobState(state), gpus, since_ms: 0 }],
      clusters: [{ id: CLUSTER, launcher: 'slurm', reachable: true, pending, running }],
      decisions: [],
      drain: [],
    });
  }
}

const jobState = (state: ModelState) => (state === 'queued' ? 'pending' : state === 'ready' ? 'ready' : 'starting');

interface ColdView {
  jobs: readonly RunJob[];
  nodes: readonly ChainNode[];
  demand: ColdDemand;
  /** A job ends after this time without a request. */
  idleMs: number;
}

/** Decides whether a job starts or ends. Pure. */
export function decideCold({ jobs, nodes, demand, idleMs }: ColdView): ChainAction[] {
  const { requests, isKnown } = demand;
  if (!isKnown) return [];
  const alive = jobs.filter(({ state }) => state !== 'ended');
  const waits = requests !== undefined && isWaiting(requests, idleMs);
  if (alive.length === 0) return waits ? [{ kind: 'submit' }] : [];
  if (waits) return [];
  const idle = nodes.filter(({ session, isReady }) => isReady && (demand.idleMs.get(session) ?? 0) >= idleMs);
  const pending = alive.filter(({ state }) => state === 'pending');
  return [
    ...pending.map(({ id }): ChainAction => ({ kind: 'cancel', job: id })),
    ...idle.map(({ job, session }): ChainAction => ({ kind: 'drain', job, session })),
  ];
}

/** True if requests or lines of batches wait, or if one was refused because the model was cold. */
function isWaiting(demand: ModelDemand, idleMs: number): boolean {
  const { waiting, queued, batch, ready_replicas: ready, asked_ms_ago: askedMs = Number.POSITIVE_INFINITY } = demand;
  return waiting + queued + (batch?.lines ?? 0) > 0 || (ready === 0 && askedMs < idleMs);
}
