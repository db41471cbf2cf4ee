import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import type { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import { breakerStateFor } from '../../shared/routing/hang/hang-suspicion.ts';
import type { BuiltInPolicy } from '../../shared/routing/policies/built-in-policies.ts';
import type { IngressShares } from '../../shared/routing/region-shares.ts';
import type { Policy } from '../../shared/routing/routing-policy.ts';
import { LOCAL_ISSUER, PROVIDER_ID_PATTERN } from '../../shared/routing/trusted-providers.ts';
import { type IngressUsage, SERVING_CHARS, TOKENS_MAX } from '../../shared/usage/ingress-usage.ts';
import type { AttemptCourse, UsageRecord } from '../../shared/usage/usage-record.ts';
import type { LoadCounter } from '../attempts/load-reports.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import type { Mesh } from '../mesh/mesh.ts';
import { MeshRequests } from '../mesh/requests/mesh-requests.ts';
import type { SealOpener } from '../seal/seal-opener.ts';
import { Ingress } from './ingress.ts';
import { IngressPlan } from './ingress-plan.ts';
import { PeerAccounts, peerOfProvider } from './peer-accounts.ts';
import { RegistryNodeIndex } from './registry-node-index.ts';
import { NO_RECEIPT } from './resolve-route.ts';
import { UsageDelivery } from './usage-delivery.ts';
import { UsageQueue } from './usage-queue.ts';

/**
 * The usage record in the form that a gateway stores.
 * @param provider provider of the session that served the request, if the registry still has it
 */
export function toIngressUsage(record: UsageRecord, provider: string | undefined): IngressUsage {
  return {
    request_id: record.requestId,
    attempt: record.attempt,
    model: record.receipt,
    session: record.session,
    ...(provider !== undefined && PROVIDER_ID_PATTERN.test(provider) ? { provider } : {}),
    prompt_tokens: tokens(record.prompt),
    completion_tokens: tokens(record.completion),
    cached_tokens: tokens(record.cached),
    reasoning_tokens: tokens(record.reasoning),
    estimated: record.estimated,
    complete: record.complete,
    aborted: record.aborted,
    answer_bytes: record.answerBytes,
    ...(record.course === undefined ? {} : { course: courseOf(record.course) }),
    at: record.at,
  };
}

/** Missing values become 0. There is no `course` if the ingress no longer knows the attempt. */
function courseOf({ endpoint, streamed, status, firstMs, totalMs }: AttemptCourse) {
  const [first_ms, total_ms] = [Math.round(firstMs ?? 0), Math.round(totalMs ?? 0)];
  return { endpoint, streamed, status: status ?? 0, first_ms, total_ms };
}

function tokens(count: number): number {
  return Math.min(TOKENS_MAX, count);
}

/** Session name of a node that no gateway has admitted yet. Only its own ingress sees it. */
const UNADMITTED_SESSION = 'unadmitted'.padEnd(26, '2');

/** Provider of a node that no gateway has admitted yet. It is not a valid provider id, so no list can contain it. */
const UNADMITTED_PROVIDER = '(unadmitted)';

/**
 * The ingress's address, the providers to which it may send requests, and the providers whose requests this node serves
 * over the mesh.
 */
export interface IngressConfig {
  /** Undefined: there is no ingress. */
  listen: { host: string; port: number } | undefined;
  /** Providers to which requests may be sent; undefined: only this node's provider. */
  trust: string[] | undefined;
  /** Providers whose agents may send requests to this node; undefined: only this node's provider. */
  serveTo: string[] | undefined;
  /** How the ingress chooses among nodes; undefined: by load, and by conversation if a request names one. */
  policy: BuiltInPolicy | Policy | undefined;
}

interface RequestServiceOptions {
  config: IngressConfig;
  /** Region of this machine; undefined: it has none. */
  region?: string | undefined;
  /** The registry replica; it outlives sessions. */
  replica: RegistryReplica;
  /** Returns the local name of an issuer; undefined for this agent's issuer. */
  issuerName(issuer: string): string | undefined;
  /** Returns how long nodes that LEFT are shown. */
  retentionMs(): number;
  /** Returns the engine's address; undefined while no engine answers. */
  engine(): EngineTarget | undefined;
  load?: LoadCounter | undefined;
  /** Returns the number of this node's GPUs; 0: unknown. */
  gpus?(): number;
  seals?: SealOpener | undefined;
  /** Returns the agent's current state directory. */
  directory(): string;
  /** Directory in which undelivered usage waits for the next agent. It outlives the state directory. */
  usageDirectory: string | undefined;
  log(line: string): void;
}

/** Facts about this node, used before any gateway has admitted it. */
export type LocalNodeFacts = Pick<RegistryEntry, 'tier' | 'labels' | 'models' | 'hardware' | 'agent_version'>;

/** This node's current identity in the mesh. */
interface Self {
  mesh: Mesh;
  session: string;
  provider: string;
}

/**
 * All requests over the mesh, in both directions, of one agent through all its sessions. Pass `requests` to each mesh,
 * pass the current mesh to `join`, and give `usage` to the tunnels.
 */
export class RequestService {
  readonly requests: MeshRequests;
  readonly usage: UsageDelivery;
  /** Accounts of gateways and agents that send requests to this node. */
  readonly accounts: PeerAccounts;
  readonly #options: RequestServiceOptions;
  readonly #nodes: RegistryNodeIndex;
  readonly #queue: UsageQueue;
  readonly #ingress: Ingress | undefined;
  readonly #plan = new IngressPlan();
  #self: Self | undefined;
  #unwatch: () => void = () => {};

  constructor(options: RequestServiceOptions) {
    const { config, replica, log, engine, load, seals, directory, usageDirectory } = options;
    this.#options = options;
    this.#queue = new UsageQueue({ directory: usageDirectory, log });
    this.usage = new UsageDelivery(this.#queue);
    this.accounts = new PeerAccounts({
      gpus: () => options.gpus?.() ?? 0,
      load: () => load?.current,
      session: () => this.#session,
      onUsage: (record) => this.#queue.add([record]),
      now: () => performance.now(),
      wall: () => Date.now(),
      newName: () => randomBytes((SERVING_CHARS * 3) / 4).toString('base64url'),
    });
    this.#nodes = new RegistryNodeIndex({
      replica,
      liveness: (session) => this.#self?.mesh.liveness(session) ?? 'alive',
      issuerName: (issuer) => options.issuerName(issuer) ?? LOCAL_ISSUER,
      own: LOCAL_ISSUER,
      retentionMs: options.retentionMs,
      now: () => Date.now(),
    });
    this.requests = new MeshRequests({
      channels: {
        channelTo: (session) => this.#channelTo(session),
        stalled: (session) => this.#self?.mesh.stalled(session) ?? false,
      },
      own: () => this.#session,
      engine,
      load,
      seals,
      onLoad: (session, load) => this.#nodes.index.live.setLoad(session, { ...load, at: Date.now() }),
      onHang: (session, pauseMs) => this.#nodes.index.live.setBreaker(session, breakerStateFor(pauseMs, Date.now())),
      accountOf: (provider) => this.accounts.of(() => peerOfProvider(provider)),
      serves: (provider) => (config.serveTo ?? [this.#self?.provider]).includes(provider),
      onSilent: (session) => log(`${session} does not answer`),
      onUsage: (records) => this.#keep(records),
      log,
    });
    this.#ingress = config.listen && this.#makeIngress(config.listen, directory);
  }

  #makeIngress(listen: { host: string; port: number }, directory: () => string): Ingress {
    return new Ingress({
      ...listen,
      directory,
      registry: this.#nodes,
      self: () => ({ issuer: LOCAL_ISSUER, provider: this.#self?.provider ?? UNADMITTED_PROVIDER }),
      trust: this.#options.config.trust,
      policy: this.#options.config.policy,
      sharesOf: (model) => this.#plan.sharesOf(model, Date.now()),
      requests: this.requests,
      log: this.#options.log,
    });
  }

  /** Region for which the ingress needs shares of a plan; empty: no region; undefined: there is no ingress. */
  get ingressRegion(): string | undefined {
    return this.#ingress === undefined ? undefined : (this.#options.region ?? '');
  }

  /** Replaces the shares by region that the ingress obeys; undefined: the gateway has no valid plan. */
  setShares(shares: IngressShares | undefined): void {
    this.#plan.set(shares, Date.now());
  }

  get #session(): string {
    return this.#self?.session ?? UNADMITTED_SESSION;
  }

  async #channelTo(session: string) {
    if (this.#self === undefined) throw new Error('this node has not joined the mesh yet');
    return this.#self.mesh.channelTo(session);
  }

  /** Listens if an address is configured. Rejects if the address cannot be used. */
  async open(): Promise<void> {
    this.requests.open();
    this.#queue.open();
    await this.#ingress?.open();
  }

  /**
   * Sets the facts with which our ingress shows this node while no gateway has admitted it; undefined: the node is not
   * shown.
   */
  unadmitted(facts: LocalNodeFacts | undefined): void {
    if (this.#self !== undefined) return;
    this.#nodes.delete(UNADMITTED_SESSION);
    if (facts === undefined) return;
    const now = new Date().toISOString();
    this.#nodes.put({
      ...facts,
      session: UNADMITTED_SESSION,
      issuer: LOCAL_ISSUER,
      provider: UNADMITTED_PROVIDER,
      cluster: 'default',
      state: 'SERVING',
      version: 0,
      connected: true,
      suspected: false,
      joined_at: now,
      updated_at: now,
    });
  }

  /** Call when a session was admitted. From then on requests are sent under its name. */
  join(mesh: Mesh, ticket: { session: string; provider: string }): void {
    this.#unwatch();
    this.#nodes.delete(UNADMITTED_SESSION);
    this.#self = { mesh, session: ticket.session, provider: ticket.provider };
    this.#unwatch = mesh.watch((sessions) => this.#nodes.changed(sessions));
    const known = [...this.#options.replica.entries()].map(({ session }) => session);
    this.#nodes.changed(known);
  }

  #keep(records: readonly UsageRecord[]): void {
    const provider = (session: string) => {
      const known = this.#nodes.index.get(session)?.provider;
      return known === UNADMITTED_PROVIDER ? undefined : known;
    };
    const charged = records.filter(({ receipt }) => receipt !== NO_RECEIPT);
    this.#queue.add(charged.map((record) => toIngressUsage(record, provider(record.session))));
  }

  /** Number of running requests: those at our engine (from other agents and our ingress), and ours at other nodes. */
  get inFlight(): number {
    return this.requests.serving.inFlight + this.requests.askedElsewhere;
  }

  status(): { url: string; key_file: string; usage_waiting: number; policy_faults: number } | undefined {
    const { url, keyFile, policyFaults = 0 } = this.#ingress ?? {};
    if (url === undefined || keyFile === undefined) return undefined;
    return { url, key_file: keyFile, usage_waiting: this.#queue.size, policy_faults: policyFaults };
  }

  /** Engine and ingress refuse new requests. Resolves when both have no running ones. */
  async drain(): Promise<void> {
    await Promise.all([this.#ingress?.drain(), this.requests.serving.drain()]);
  }

  /** Call before the meshes close, so that running requests are still reported as ended. Idempotent. */
  async close(): Promise<void> {
    await this.#ingress?.close();
    await this.requests.close();
    this.#unwatch();
    this.usage.close();
    this.#queue.close();
  }
}

/** The usage directory is next to the state directories of all agents of this user. */
export function usageDirectoryOf(stateDirectory: string): string {
  return join(stateDirectory, '..', 'usage');
}
