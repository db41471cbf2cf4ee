/**
 * A process of the simulator: it drives one real core as an agent or a gateway does. It has one CPU; every message
 * costs time, and now and then the process stalls.
 */

import type { GossipMemory } from '../../shared/gossip/index.ts';
import {
  createGossip,
  type GossipAction,
  type GossipEvent,
  type GossipOptions,
  type GossipSelf,
  type GossipState,
  step,
} from '../../shared/gossip/index.ts';
import type { Signer } from '../../shared/lattice/crypto-interface.ts';
import type { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import type { Clock } from './clock.ts';
import type { CountingCrypto } from './crypto.ts';
import { HEADER_BYTES } from './network.ts';
import { exponential, type Rng } from './random.ts';

/** Measured on one core of a small cloud machine; docs/design/gossip.md. */
const CPU = { sendMs: 0.012, receiveMs: 0.03, verifyMs: 0.12 };
/** A garbage collection, a neighbor's burst: every 10 s for 20 ms, both exponential. */
const STALL = { everyMs: 10_000, meanMs: 20 };

interface NodeSetup {
  name: string;
  self: GossipSelf;
  replica: RegistryReplica;
  crypto: CountingCrypto;
  signer: Signer | undefined;
  options: Partial<GossipOptions>;
  memory?: GossipMemory | undefined;
  clock: Clock;
  rng: Rng;
  stalls: boolean;
  /** Difference of its clock from virtual time. */
  skewMs?: number;
  /** Gets each action of the core, and the time at which its CPU had finished it. */
  onAction: (node: SimNode, action: GossipAction, at: number) => void;
}

export class SimNode {
  readonly name: string;
  readonly self: GossipSelf;
  readonly state: GossipState;
  readonly replica: RegistryReplica;
  readonly sent = { bytes: 0, messages: 0 };
  readonly received = { messages: 0 };
  status: 'running' | 'hung' | 'dead' = 'running';
  readonly #setup: NodeSetup;
  readonly #inbox: GossipEvent[] = [];
  #freeAt = 0;
  #working = false;
  #timer = 0;

  constructor(setup: NodeSetup) {
    this.#setup = setup;
    this.name = setup.name;
    this.self = setup.self;
    this.replica = setup.replica;
    const { self, replica, crypto, signer, options, memory } = setup;
    this.state = createGossip({
      self,
      replica,
      crypto,
      options,
      ...(signer === undefined ? {} : { signer }),
      ...(memory === undefined ? {} : { memory }),
    });
    if (setup.stalls) this.#planStall();
  }

  /** Events wait, in order, while the CPU is busy, the process is stopped or a stall lasts. */
  take(event: GossipEvent): void {
    if (this.status === 'dead') return;
    this.#inbox.push(event);
    this.#work();
  }

  hang(): void {
    if (this.status === 'running') this.status = 'hung';
  }

  resume(): void {
    if (this.status !== 'hung') return;
    this.status = 'running';
    this.#work();
  }

  kill(): void {
    this.status = 'dead';
    this.#inbox.length = 0;
  }

  get queued(): number {
    return this.#inbox.length;
  }

  stall(ms: number): void {
    this.#freeAt = Math.max(this.#freeAt, this.#setup.clock.now) + ms;
  }

  count(bytes: number): void {
    this.sent.bytes += bytes + HEADER_BYTES;
    this.sent.messages++;
  }

  #work(): void {
    if (this.#working || this.status !== 'running' || this.#inbox.length === 0) return;
    this.#working = true;
    this.#setup.clock.at(this.#freeAt, () => {
      this.#working = false;
      if (this.status !== 'running') return;
      // A stall began meanwhile.
      if (this.#freeAt > this.#setup.clock.now) return this.#work();
      const event = this.#inbox.shift();
      if (event !== undefined) this.#handle(event);
      this.#work();
    });
  }

  #handle(event: GossipEvent): void {
    const { clock, crypto, rng, onAction, skewMs = 0 } = this.#setup;
    const before = crypto.count.verified;
    const actions = step(this.state, event, clock.now + skewMs, rng);
    let at = clock.now + CPU.receiveMs + (crypto.count.verified - before) * CPU.verifyMs;
    for (const action of actions) {
      if (action.type === 'send') at += CPU.sendMs;
      if (action.type === 'timer') this.#setTimer(action.at - skewMs);
      else onAction(this, action, at);
    }
    this.#freeAt = at;
  }

  #setTimer(at: number): void {
    const timer = ++this.#timer;
    this.#setup.clock.at(at, () => {
      if (timer !== this.#timer || this.status === 'dead') return;
      // Timers run before events that wait in sockets, as in Node's event loop after a stall.
      this.#inbox.unshift({ type: 'timer' });
      this.#work();
    });
  }

  #planStall(): void {
    const { clock, rng } = this.#setup;
    clock.after(exponential(rng, STALL.everyMs), () => {
      if (this.status === 'dead') return;
      this.stall(exponential(rng, STALL.meanMs));
      this.#planStall();
    });
  }
}
