import { createServer, type Server } from 'node:http';
import { isIP } from 'node:net';
import { join } from 'node:path';
import type { PolicyFault } from '../../shared/routing/policies/operator-policies.ts';
import type { ShippedPolicy } from '../../shared/routing/policies/shipped.ts';
import type { Policy } from '../../shared/routing/policy.ts';
import { decideTrust, type Trust } from '../../shared/routing/trust.ts';
import { listenError } from '../../shared/terminal/listen-error.ts';
import type { MeshRequests } from '../mesh/requests/mesh-requests.ts';
import { handleIngressRequest, type IngressServices } from './handle.ts';
import { IngressHost } from './ingress-host.ts';
import { INGRESS_KEY_FILE, IngressKey } from './key.ts';
import { policyOf } from './policies.ts';
import { IngressQueues, QUEUE_LIMITS, type QueueLimits } from './queues.ts';
import type { ReadableRegistry } from './registry.ts';
import { RegistryWatchers } from './registry-watchers.ts';
import { RunningRequests } from './running-requests.ts';
import { UnauthenticatedLimit } from './unauthenticated-limit.ts';

/** A stream that has waited this long is opened with comments: proxies on the way cut what is silent for 100 s. */
const PING_MS = 15_000;

/** One request each: bounds the first MiBs, and what stalled readers hold of the channels' windows. */
const CONNECTIONS_MAX = 1024;

/** A client that opens a connection says what it wants within this. */
const HEADERS_TIMEOUT_MS = 15_000;

/** Faults of the operator's policy are logged so often. */
const FAULT_TOLD_MS = 60_000;

/** Idle connections of SDKs' pools. */
const KEEP_ALIVE_MS = 65_000;

interface IngressOptions {
  host: string;
  port: number;
  /** The agent's state directory as it is called now; the key is written there. */
  directory(): string;
  registry: ReadableRegistry;
  /** Where we stand: own issuer's local name, and own provider's id. Read for each request. */
  self(): { issuer: string; provider: string };
  /** `--trust`; undefined: our own provider. */
  trust: readonly string[] | undefined;
  /** `--policy`; undefined: by load, and by conversation where a request names one. */
  policy?: ShippedPolicy | Policy | undefined;
  /** Who waits, and how long, where no node is free. */
  queue?: QueueLimits;
  requests: Pick<MeshRequests, 'ask'>;
  /** A stream that has waited this long is opened with comments. Default 15 s. */
  pingMs?: number;
  /** A body that brings next to nothing for so long is given up. Default 30 s. */
  bodyStallMs?: number | undefined;
  log(line: string): void;
}

/** A local OpenAI endpoint that routes over the mesh: it needs no gateway. */
export class Ingress {
  readonly #options: IngressOptions;
  readonly #server: Server;
  readonly #unauthenticated = new UnauthenticatedLimit();
  readonly #running = new RunningRequests();
  readonly #queues: IngressQueues;
  #services: IngressServices | undefined;
  #ownTrust: { issuer: string; provider: string; trust: Trust } | undefined;
  #address: { host: string; port: number } | undefined;
  /** Choices of the operator's policy that the default made. */
  policyFaults = 0;
  #faultTold = Number.NEGATIVE_INFINITY;

  constructor(options: IngressOptions) {
    this.#options = options;
    this.#queues = new IngressQueues(options.queue ?? QUEUE_LIMITS);
    this.#server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS, headersTimeout: HEADERS_TIMEOUT_MS }, (req, res) => {
      req.on('error', () => {}); // its reader sees the end
      res.on('error', () => {});
      if (this.#services !== undefined) void handleIngressRequest(req, res, this.#services);
    });
    this.#server.requestTimeout = 0; // bodies of any size stream; those that stall are given up where they are read
    this.#server.maxConnections = CONNECTIONS_MAX;
    this.#server.on('connection', (socket) => this.#unauthenticated.add(socket));
    this.#server.on('error', (error) => options.log(`ingress: ${error.message}`));
  }

  /** Where it listens; undefined before `open`. */
  get url(): string | undefined {
    if (this.#address === undefined) return undefined;
    const { host, port } = this.#address;
    return `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}/v1`;
  }

  get keyFile(): string | undefined {
    return this.#services && join(this.#options.directory(), INGRESS_KEY_FILE);
  }

  /** Requests that wait for a free node. */
  get waiting(): number {
    return this.#queues.waiting;
  }

  #policyFault(kind: PolicyFault, why: string): void {
    this.policyFaults++;
    const now = performance.now();
    if (now - this.#faultTold < FAULT_TOLD_MS) return;
    this.#faultTold = now;
    this.#options.log(`the ingress's policy (${kind}): ${why}; the default chooses`);
  }

  /** Writes the key, then listens. Rejects where the address cannot be had. */
  async open(): Promise<void> {
    const { directory, host, port, log, requests, registry } = this.#options;
    this.#services = {
      key: IngressKey.make(directory()),
      unauthenticated: this.#unauthenticated,
      running: this.#running,
      watchers: new RegistryWatchers(),
      registry,
      trust: () => this.#trust([]),
      log,
      host: new IngressHost({
        nodes: registry.index,
        queues: this.#queues,
        policyFor: policyOf(this.#options.policy, (kind, why) => this.#policyFault(kind, why)),
        trust: (lists) => this.#trust(lists),
        ask: (session, request, body) => requests.ask(session, request, body),
        pingMs: this.#options.pingMs ?? PING_MS,
        bodyStallMs: this.#options.bodyStallMs,
        log,
      }),
    };
    await new Promise<void>((resolve, reject) => {
      const refused = (error: Error) => reject(listenError(error, { host, port }));
      this.#server.once('error', refused);
      this.#server.listen(port, host, () => {
        this.#server.off('error', refused);
        resolve();
      });
    });
    const address = this.#server.address();
    this.#address = { host, port: typeof address === 'object' && address !== null ? address.port : port };
    log(`ingress ${this.url}, key in ${this.keyFile}`);
    if (!isLoopback(host)) log(`warning: the ingress on ${host} takes keys and prompts over the network in clear`);
  }

  /** The same object for as long as we stand where we do: what was filtered with it holds. */
  #trust(lists: readonly (readonly string[])[]): Trust {
    const { issuer, provider } = this.#options.self();
    if (lists.length > 0) return this.#decide(issuer, provider, lists);
    if (this.#ownTrust?.issuer !== issuer || this.#ownTrust.provider !== provider) {
      this.#ownTrust = { issuer, provider, trust: this.#decide(issuer, provider, []) };
    }
    return this.#ownTrust.trust;
  }

  #decide(own: string, provider: string, lists: readonly (readonly string[])[]): Trust {
    const { trust = [provider] } = this.#options;
    return decideTrust({ own, lists: [trust, ...lists], defaults: [], deleted: new Set(), policies: [] });
  }

  /** Takes no new requests, and lets those go that wait for a node; resolves when every client has its answer. */
  drain(): Promise<void> {
    this.#queues.close();
    return this.#running.drain();
  }

  /** Running requests are cut off: drain before. Idempotent. */
  async close(): Promise<void> {
    this.#queues.close();
    if (!this.#server.listening) return;
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\./.test(host);
}
