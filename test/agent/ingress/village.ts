/**
 * Agents with engines and ingresses in one process; channels between them are pairs of in-memory links, made when
 * dialed.
 */
import { readFileSync } from 'node:fs';
import { expect } from 'vitest';
import { Ingress } from '../../../agent/ingress/ingress.ts';
import type { QueueLimits } from '../../../agent/ingress/ingress-queues.ts';
import { type MemoryChannel, memoryChannel } from '../../../agent/mesh/requests/memory-channel.ts';
import { MeshRequests } from '../../../agent/mesh/requests/mesh-requests.ts';
import type { RequestChannel } from '../../../agent/mesh/requests/request-channel.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { breakerStateFor } from '../../../shared/routing/hang/hang-suspicion.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import type { BuiltInPolicy } from '../../../shared/routing/policies/built-in-policies.ts';
import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import type { Link } from '../../../shared/wire/link.ts';
import { SOCKET_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { type Engine, type EngineOptions, startEngine } from '../../support/engine.ts';
import { atEnd, eventually, LOST_CREDIT, temporaryDirectory } from '../../support/processes.ts';
import { MODEL } from '../../support/test-cluster.ts';

interface VillagerOptions {
  provider?: string;
  issuer?: string;
  engine?: EngineOptions | false;
  /** URL of an engine that the test plays; requires `engine: false`. */
  engineUrl?: string;
  trust?: string[];
  serveTo?: string[];
  models?: string[];
  pingMs?: number;
  bodyStallMs?: number;
  policy?: BuiltInPolicy;
  queue?: Partial<QueueLimits>;
}

/** Short, so that a request without a node is refused within a test. */
const QUEUE: QueueLimits = { unaryMs: 300, streamMs: 2_000, places: 100 };

/** Credit that a link holds back until there is enough for a frame: see SocketWindow. */
const UNTOLD_MAX = 256 * 1024;

/** Bytes of the receiver's window that the sender may not use: held, not granted again yet, or lost. */
function unreturned(sender: Link, receiver: Link): number {
  const { sent, sendLimit } = sender.state;
  if (receiver.buffered > 0 || sent !== receiver.state.received || sendLimit !== receiver.state.receiveLimit)
    return Number.POSITIVE_INFINITY;
  return SOCKET_WINDOW_BYTES - (sendLimit - sent);
}

export class Village {
  readonly villagers: Villager[] = [];
  /** The replica that all members share. */
  readonly registry = { index: new NodeIndex(), version: 0 };
  readonly #pairs = new Set<{ pair: MemoryChannel; ends: readonly [Villager, Villager] }>();
  /** Number of channels made until now. */
  dialled = 0;

  async add(options: VillagerOptions = {}): Promise<Villager> {
    const villager = await Villager.make(this, sessionOf(this.villagers.length), options);
    this.villagers.push(villager);
    this.publish(villager.entry);
    return villager;
  }

  /** Puts an entry into the shared replica, also for nodes that no member runs. */
  publish(entry: RegistryEntry): void {
    this.registry.index.put(entry);
    this.registry.version++;
  }

  readonly #stubs = new Map<string, () => RequestChannel>();

  /** A node that the test plays. */
  answerFor(session: string, dialled: () => RequestChannel): void {
    this.#stubs.set(session, dialled);
  }

  async dial(from: Villager, session: string): Promise<RequestChannel> {
    await new Promise((resolve) => setImmediate(resolve));
    const stub = this.#stubs.get(session);
    if (stub !== undefined) return stub();
    const to = this.villagers.find((one) => one.session === session);
    if (to === undefined || !to.reachable) throw to?.refusal ?? new Error(`${session} takes no channel`);
    this.dialled++;
    const pair = memoryChannel(
      { session: from.session, provider: from.provider, events: from.requests },
      { session: to.session, provider: to.provider, events: to.requests },
    );
    // Teardown runs the newest first, so both villagers are still there.
    if (this.#pairs.size === 0) atEnd(() => this.#returnsCredit());
    this.#pairs.add({ pair, ends: [from, to] });
    from.requests.onChannel(pair.near);
    to.requests.onChannel(pair.far);
    return pair.near;
  }

  /**
   * Of each channel that no test cut: when its requests have ended, all granted credit was returned. What a reader did
   * not take is returned too.
   */
  async #returnsCredit(): Promise<void> {
    await Promise.all(this.villagers.map(({ ingress }) => ingress.close()));
    for (const { pair } of this.#pairs) {
      const links = [pair.near.link, pair.far.link] as const;
      await eventually('all credit is returned', 10_000, () =>
        pair.near.closed || (unreturned(...links) < UNTOLD_MAX && unreturned(links[1], links[0]) < UNTOLD_MAX)
          ? true
          : undefined,
      );
    }
    // Afterwards, because an idle channel grants lost credit again.
    expect(this.villagers.flatMap(({ log }) => log.filter((line) => LOST_CREDIT.test(line)))).toEqual([]);
  }

  /** Of the windows of the channels that this villager dialed, the largest fraction that waits for its readers. */
  pressure(villager: Villager): number {
    const own = [...this.#pairs].filter(({ ends }) => ends[0] === villager);
    return Math.max(0, ...own.map(({ pair }) => pair.near.link.pressure));
  }

  /** Ends every channel of this villager, as when its connection is lost; or only the oldest `count`. */
  cut(villager: Villager, count = Number.POSITIVE_INFINITY): void {
    let left = count;
    for (const one of this.#pairs) {
      if (!one.ends.includes(villager) || left-- <= 0) continue;
      this.#pairs.delete(one);
      one.pair.close();
    }
  }
}

export class Villager {
  session: string;
  readonly provider: string;
  readonly engine: Engine | undefined;
  readonly requests: MeshRequests;
  readonly ingress: Ingress;
  readonly usage: UsageRecord[] = [];
  /** Sessions that did not acknowledge. */
  readonly silent: string[] = [];
  readonly log: string[] = [];
  reachable = true;
  /** Why a dial fails while it is not reachable. */
  refusal: unknown;
  readonly entry: RegistryEntry;
  serveTo: string[];
  readonly #village: Village;

  private constructor(
    village: Village,
    session: string,
    directory: string,
    engine: Engine | undefined,
    options: VillagerOptions,
  ) {
    const url = engine?.url ?? options.engineUrl;
    this.#village = village;
    this.session = session;
    this.provider = options.provider ?? 'lab';
    this.engine = engine;
    this.serveTo = options.serveTo ?? [this.provider];
    this.entry = entryOf(session, this.provider, options.issuer ?? 'local', url ? (options.models ?? [MODEL]) : []);
    this.requests = new MeshRequests({
      channels: { channelTo: (to) => village.dial(this, to) },
      own: () => this.session,
      engine: () =>
        url === undefined
          ? undefined
          : {
              origin: url,
              pathPrefix: '',
              ...(options.engine && options.engine.apiKey !== undefined ? { key: options.engine.apiKey } : {}),
            },
      serves: (provider) => this.serveTo.includes(provider),
      onSilent: (silent) => this.silent.push(silent),
      onHang: (node, pauseMs) => village.registry.index.live.setBreaker(node, breakerStateFor(pauseMs, Date.now())),
      onUsage: (records) => this.usage.push(...records),
      log: (line) => this.log.push(line),
    });
    this.ingress = new Ingress({
      host: '127.0.0.1',
      port: 0,
      directory: () => directory,
      registry: village.registry,
      self: () => ({ issuer: 'local', provider: this.provider }),
      trust: options.trust,
      requests: this.requests,
      policy: options.policy,
      queue: { ...QUEUE, ...options.queue },
      bodyStallMs: options.bodyStallMs,
      ...(options.pingMs === undefined ? {} : { pingMs: options.pingMs }),
      log: (line) => this.log.push(line),
    });
  }

  static async make(village: Village, session: string, options: VillagerOptions): Promise<Villager> {
    const engine =
      options.engine === false
        ? undefined
        : await startEngine({ models: options.models ?? [MODEL], ...options.engine });
    const villager = new Villager(village, session, await temporaryDirectory('otela-ingress'), engine, options);
    villager.requests.open();
    await villager.ingress.open();
    atEnd(() => villager.close());
    return villager;
  }

  get url(): string {
    return this.ingress.url ?? '';
  }

  get key(): string {
    return readFileSync(this.ingress.keyFile ?? '', 'utf8').trim();
  }

  ask(path: string, body?: unknown, init: RequestInit = {}): Promise<Response> {
    return fetch(`${this.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      ...init,
      headers: {
        authorization: `Bearer ${this.key}`,
        'content-type': 'application/json',
        ...Object.fromEntries(new Headers(init.headers)),
      },
    });
  }

  /** Waits until there are `count` usage records. */
  accounted(count: number): Promise<UsageRecord[]> {
    return eventually(`${count} usage records`, 5_000, () => (this.usage.length >= count ? this.usage : undefined));
  }

  /** Ends like a killed process: its channels end and new ones are refused. */
  async kill(): Promise<void> {
    this.reachable = false;
    this.#village.cut(this);
    await this.engine?.close();
  }

  async close(): Promise<void> {
    await this.ingress.close();
    await this.requests.close();
    this.#village.cut(this);
    await this.engine?.close();
  }
}

function sessionOf(number: number): string {
  return `${'abcdefghijklmnopqrstuvwxyz'[number] ?? 'z'}`.repeat(26);
}

export function entryOf(session: string, provider: string, issuer: string, models: string[]): RegistryEntry {
  const now = new Date().toISOString();
  return {
    session,
    issuer,
    provider,
    cluster: 'default',
    state: 'SERVING',
    version: 1,
    connected: true,
    suspected: false,
    tier: 'stable',
    labels: {},
    models: models.map((id) => ({ id, state: 'ready' })),
    hardware: { gpus: [], cpus: 2, memory_mib: 1024 },
    agent_version: 'test',
    joined_at: now,
    updated_at: now,
  };
}
