import { EventQueue } from '../../../shared/gossip/event-queue.ts';
import {
  createGossip,
  type GossipAction,
  type GossipEvent,
  type GossipMemory,
  type GossipNotice,
  type GossipState,
  livenessOf,
  saveState,
  type TunableOptions,
} from '../../../shared/gossip/index.ts';
import type { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import type { Update } from '../../../shared/lattice/registry-update.ts';
import type { ProbeVerdict } from '../../../shared/wire/frames.ts';
import { workerdCrypto } from '../../issuer/ed25519.ts';
import type { Clock } from '../../platform/object-context.ts';
import { steadyNow } from '../../platform/steady-clock.ts';
import { telemetrySink } from '../../platform/telemetry-sink.ts';

/** Timers that are nearer than this are kept in memory, because the object would not sleep earlier anyway. */
const NEAR_MS = 8_000;

interface GatewayGossipDriverOptions {
  /** `id`: this gateway's key as a gossip peer, `gw:…`. `issuer`: our issuer. */
  id: string;
  issuer: string;
  replica: RegistryReplica;
  /** The options with the operator's settings. */
  options: TunableOptions;
  memory: GossipMemory | undefined;
  clock: Clock;
  send(session: string, bytes: Uint8Array): void;
  hangUp(session: string, reason: string, bannedUntil: number): void;
  changed(sessions: readonly string[]): void;
  liveness(session: string, liveness: 'alive' | 'unreachable' | 'suspected'): void;
  probe(session: string): Promise<ProbeVerdict>;
  /** Signs and merges an eviction; undefined if this gateway did not admit the session. */
  evict(session: string): Update | undefined;
  /** Wakes the object at this time. */
  wakeAt(at: number): void;
  /** Called when the state that must outlive a sleep has changed. */
  remembered(): void;
  /** Keeps the object awake until the work is done. */
  waitUntil(work: Promise<unknown>): void;
}

/** Runs the gossip core at a gateway: performs the actions that the core returns. */
export class GatewayGossipDriver {
  readonly #options: GatewayGossipDriverOptions;
  readonly #state: GossipState;
  readonly #events: EventQueue;
  /** How often a near timer fired since the object woke. While such a timer is set, the object stays awake. */
  timers = 0;
  #timer: (() => void) | undefined;

  constructor(options: GatewayGossipDriverOptions) {
    this.#options = options;
    const { id, issuer, replica, memory, options: tuned } = options;
    const self = { kind: 'gateway', id, issuer } as const;
    this.#state = createGossip({
      self,
      replica,
      crypto: workerdCrypto,
      options: tuned,
      ...(memory === undefined ? {} : { memory }),
    });
    this.#events = new EventQueue({
      state: this.#state,
      now: steadyNow,
      random: Math.random,
      act: (action, now) => this.#act(action, now),
    });
  }

  get memory(): GossipMemory {
    return saveState(this.#state);
  }

  liveness(session: string): 'alive' | 'unreachable' | 'suspected' {
    return livenessOf(this.#state, session);
  }

  handle(event: GossipEvent): void {
    this.#events.handle(event);
  }

  #act(action: GossipAction, now: number): void {
    const { send, hangUp, changed, liveness, remembered } = this.#options;
    switch (action.type) {
      case 'send':
        return send(action.peer, action.bytes);
      case 'dial':
        return this.handle({ type: 'dialFailed', peer: action.peer }); // agents dial gateways, never the reverse
      case 'hangUp':
        return hangUp(action.peer, action.reason, action.banMs > 0 ? Date.now() + action.banMs : 0);
      case 'timer':
        return this.#arm(action.at - now);
      case 'changed':
        return changed(action.sessions);
      case 'liveness':
        liveness(action.session, action.liveness);
        return remembered();
      case 'askGateway':
        return this.#relay(action.target);
      case 'evict':
        return this.#evict(action.session);
      case 'notice':
        this.#logNotice(action.notice);
        return remembered(); // /readyz shows which clusters are frozen
      case 'ended':
        return; // only agents need this action
    }
  }

  /** Logs one line when most nodes of a cluster stop answering, and one when its nodes may be evicted again. */
  #logNotice(notice: GossipNotice): void {
    if (notice.what !== 'frozen' && notice.what !== 'thawed') return;
    const line = { event: `cluster_${notice.what}`, at: new Date().toISOString(), cluster: notice.cluster };
    telemetrySink.sink?.event(line);
    console.log(JSON.stringify(line));
  }

  /** Sets the core's next timer, `left` milliseconds from now. */
  #arm(left: number): void {
    this.#timer?.();
    this.#timer = undefined;
    if (left >= NEAR_MS) return this.#options.wakeAt(Date.now() + left);
    this.#timer = this.#options.clock.after(Math.max(0, left), () => {
      this.#timer = undefined;
      this.timers++;
      this.handle({ type: 'timer' });
    });
  }

  #relay(target: string): void {
    const { probe, waitUntil } = this.#options;
    const asked = probe(target).catch(() => 'unknown' as const);
    waitUntil(asked.then((verdict) => this.handle({ type: 'gatewayAnswered', target, verdict })));
  }

  #evict(session: string): void {
    const update = this.#options.evict(session);
    if (update !== undefined) this.handle({ type: 'local', updates: [update] });
    this.#options.remembered();
  }
}
