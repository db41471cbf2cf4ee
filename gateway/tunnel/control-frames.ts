import { PendingReplies } from '../../shared/attempts/pending-replies.ts';
import type { NodeLoad } from '../../shared/routing/node-load.ts';
import type { Frame, ProbeVerdict } from '../../shared/wire/frames.ts';
import { WireError } from '../../shared/wire/wire-error.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { startTimer } from '../platform/start-timer.ts';
import { RETRY_MS } from '../platform/storage/storage-health.ts';
import { waitClock } from '../platform/wait-clock.ts';
import { storeIngressUsage } from '../usage/outbox/ingress-usage-table.ts';
import type { UsageOutbox } from '../usage/outbox/usage-outbox.ts';
import type { UsageAnomalies, UsageAnomaly } from '../usage/usage-anomalies.ts';
import type { AgentSocket } from './agent-socket.ts';
import { PendingProbes } from './pending-probes.ts';
import type { RegistryNotifier } from './registry-notifier.ts';
import { ReportedLoad } from './reported-load.ts';

/**
 * Bounds on the wait for an agent's answer to an order, which agents send quickly. After the wait, the operator sees
 * that the outcome is unknown.
 */
const ANSWER = { leastMs: 10_000, mostMs: 60_000 };

/** Maximum orders to one agent that wait for an answer. */
const WAITING_MAX = 16;

/** Orders to the agent of one tunnel that wait for an answer. The answer is JSON, or null if none arrived. */
class PendingOrders extends PendingReplies<string | null> {
  constructor() {
    super({ max: WAITING_MAX, wait: ANSWER, late: null, unknown: null, patience: waitClock });
  }
}

interface ControlFramesOptions {
  session: string;
  ctx: Pick<ObjectContext, 'storage' | 'health'>;
  registry: RegistryNotifier;
  outbox: UsageOutbox;
  anomalies: UsageAnomalies;
  waitUntil(work: Promise<void>): void;
  /** Returns the number of requests that run at the agent. */
  open(): number;
}

/** Handles the frames of one tunnel that belong to no attempt: records, probes, load, usage, prefixes, deployments. */
export class ControlFrames {
  readonly #options: ControlFramesOptions;
  readonly #probes = new PendingProbes();
  readonly #deploys = new PendingOrders();
  readonly #load = new ReportedLoad();
  /** Cancels the scheduled retry of storing records of the agent's ingress. */
  #postponed: (() => void) | undefined;

  constructor(options: ControlFramesOptions) {
    this.#options = options;
  }

  /** The load of its engine that the agent last reported; undefined: none. */
  get load(): NodeLoad | undefined {
    return this.#load.current;
  }

  /** Returns the loads of the last hour, oldest first. */
  loads(now: number): NodeLoad[] {
    return this.#load.history(now);
  }

  /** @throws WireError if the agent violates the protocol */
  receive(peer: AgentSocket, frame: Frame): void {
    const { registry, outbox } = this.#options;
    switch (frame.type) {
      case 'record':
        return registry.record({ peer, sequence: frame.sequence, update: frame.update });
      case 'probe':
        return this.#askElsewhere(peer, frame.nonce, frame.session);
      case 'probed':
        return peer.confirmed(frame.nonce) ? undefined : this.#probes.answered(frame.nonce, frame.verdict);
      case 'deployed':
        return this.#deploys.answered(frame.sequence, frame.json);
      case 'usage':
        return this.#storeUsage(peer, frame.sequence, frame.json);
      case 'load':
        return this.#onLoad(frame);
      case 'rate':
        return this.#load.rate(frame.tokensPerSecond);
      case 'prefixes':
        outbox.prefixes.add(frame.of, frame.blocks, Date.now());
        return outbox.schedule();
      default:
        return; // a repeated hello, or a frame that only gateways send, is ignored
    }
  }

  /**
   * Handles a load, which agents send along with responses. Workers get the load with their responses. All other
   * isolates get it with the next snapshot.
   */
  #onLoad(frame: Extract<Frame, { type: 'load' }>): void {
    const news = this.#load.update(frame, this.#options.open(), Date.now());
    if (news !== undefined) this.#options.registry.live({ load: news });
  }

  /** Stores usage that the agent recorded: of its ingress, and of peer institutions. @throws WireError */
  #storeUsage(peer: AgentSocket, sequence: number, json: string): void {
    const { ctx, outbox, anomalies } = this.#options;
    const { provider } = peer.attachment;
    const now = Date.now();
    let refused: UsageAnomaly[] | undefined;
    try {
      refused = storeIngressUsage(ctx.storage.sql, json, provider, now);
    } catch (error) {
      if (!ctx.health.failed(error, now)) throw error;
      return this.#postpone(peer, sequence, json);
    }
    if (refused === undefined) throw new WireError('bad_frame', 'the frame contains no usage records');
    anomalies.add(refused, provider, now);
    outbox.schedule();
    peer.link.put({ type: 'stored', sequence });
  }

  /** Stores the records later. The agent keeps them until it gets STORED, and sends no other records until then. */
  #postpone(peer: AgentSocket, sequence: number, json: string): void {
    this.#postponed?.();
    this.#postponed = startTimer(RETRY_MS, () => {
      this.#postponed = undefined;
      this.#storeUsage(peer, sequence, json);
    });
  }

  /** Handles the agent's request to probe a session that the agent cannot reach. */
  #askElsewhere(peer: AgentSocket, nonce: number, session: string): void {
    if (!this.#probes.mayAsk(Date.now())) return peer.link.put({ type: 'probed', nonce, verdict: 'unknown' });
    const { registry, waitUntil } = this.#options;
    waitUntil(registry.probe(session).then((verdict) => peer.link.put({ type: 'probed', nonce, verdict })));
  }

  /** Checks whether the agent answers. */
  probe({ link }: AgentSocket): Promise<ProbeVerdict> {
    return this.#probes.ask((nonce) => link.put({ type: 'probe', nonce, session: this.#options.session }));
  }

  /** Sends an order. Resolves to the agent's answer as JSON; null: the agent did not answer. */
  deploy({ link }: AgentSocket, order: Uint8Array): Promise<string | null> {
    return this.#deploys.ask((sequence) => link.put({ type: 'deploy', sequence, order }));
  }

  /** Ends probes and orders that were sent over a socket that is gone. */
  abandon(): void {
    this.#postponed?.();
    this.#postponed = undefined;
    this.#probes.abandon();
    this.#deploys.abandon();
  }
}
