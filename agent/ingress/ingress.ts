import { createServer, type Server } from 'node:http';
import { isIP } from 'node:net';
import { join } from 'node:path';
import type { BuiltInPolicy } from '../../shared/routing/policies/built-in-policies.ts';
import type { PolicyFault } from '../../shared/routing/policies/operator-policies.ts';
import type { ModelShares } from '../../shared/routing/region-shares.ts';
import type { Policy } from '../../shared/routing/routing-policy.ts';
import { decideTrust, type Trust } from '../../shared/routing/trusted-providers.ts';
import { listenError } from '../../shared/terminal/listen-error.ts';
import { inBackground } from '../../shared/timing/in-background.ts';
import type { MeshRequests } from '../mesh/requests/mesh-requests.ts';
import type { AgentRegistryView } from './agent-registry-view.ts';
import { handleIngressRequest, type IngressServices } from './handle-ingress-request.ts';
import { IngressHost } from './ingress-host.ts';
import { INGRESS_KEY_FILE, IngressKey } from './ingress-key.ts';
import { IngressQueues, QUEUE_LIMITS, type QueueLimits } from './ingress-queues.ts';
import { RegistryChangeStreams } from './registry-change-streams.ts';
import { policyOf } from './routing-policies.ts';
import { RunningRequests } from './running-requests.ts';
import { UnauthenticatedLimit } from './unauthenticated-limit.ts';

/**
 * A stream that has waited this long begins with SSE comments. Otherwise proxies would close the connection, which they
 * do after 100 s of silence.
 */
const PING_MS = 15_000;

/**
 * Maximum number of connections, with one request each. It also bounds memory, which may hold the first MiB of each
 * request's body and, if the client does not read, one channel window of its response.
 */
const CONNECTIONS_MAX = 1024;

/** Time in which a new connection must send its request's headers. */
const HEADERS_TIMEOUT_MS = 15_000;

/** Minimum time between two log lines about faults of the operator's policy. */
const FAULT_LOG_MS = 60_000;

/** How long idle connections are kept for the connection pools of SDKs. */
const KEEP_ALIVE_MS = 65_000;

interface IngressOptions {
  host: string;
  port: number;
  /** Returns the agent's current state directory, to which the key is written. */
  directory(): string;
  registry: AgentRegistryView;
  /**
   * Returns this node's identity: the local name of its issuer, and the id of its provider. Called for each request.
   */
  self(): { issuer: string; provider: string };
  /** From `--trust`; undefined: this node's provider only. */
  trust: readonly string[] | undefined;
  /** From `--policy`; undefined: by load, and by conversation if a request names one. */
  policy?: BuiltInPolicy | Policy | undefined;
  /** How many requests may wait for a free node, and for how long. */
  queue?: QueueLimits;
  /** Returns the shares by region of a model; undefined while no plan is valid. */
  sharesOf?: ((model: string) => ModelShares | undefined) | undefined;
  requests: Pick<MeshRequests, 'ask'>;
  /** A stream that has waited this long begins with comments. Default: 15 s. */
  pingMs?: number;
  /** A body that makes almost no progress for this long is ended. Default: 30 s. */
  bodyStallMs?: number | undefined;
  log(line: string): void;
}

/** A local OpenAI endpoint that routes over the mesh. It needs no gateway. */
export class Ingress {
  readonly #options: IngressOptions;
  readonly #server: Server;
  readonly #unauthenticated = new UnauthenticatedLimit();
  readonly #running = new RunningRequests();
  readonly #queues: IngressQueues;
  #services: IngressServices | undefined;
  #ownTrust: { issuer: string; provider: string; trust: Trust } | undefined;
  #address: { host: string; port: number } | undefined;
  /** How often the operator's policy failed to choose, so that the default policy chose. */
  policyFaults = 0;
  #faultLoggedAt = Number.NEGATIVE_INFINITY;

  constructor(options: IngressOptions) {
    this.#options = options;
    this.#queues = new IngressQueues(options.queue ?? QUEUE_LIMITS);
    this.#server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS, headersTimeout: HEADERS_TIMEOUT_MS }, (req, res) => {
      req.on('error', () => {}); // the body's reader sees the error too
      res.on('error', () => {});
      if (this.#services !== undefined)
        inBackground('ingress', handleIngressRequest(req, res, this.#services), options.log);
    });
    this.#server.requestTimeout = 0; // no time limit for a request: bodies of any size are streamed, and their reader ends stalled ones
    this.#server.maxConnections = CONNECTIONS_MAX;
    this.#server.on('connection', (socket) => this.#unauthenticated.add(socket));
    this.#server.on('error', (error) => options.log(`ingress: ${error.message}`));
  }

  /** The ingress's URL; undefined before `open` has resolved. */
  get url(): string | undefined {
    if (this.#address === undefined) return undefined;
    const { host, port } = this.#address;
    return `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}/v1`;
  }

  get keyFile(): string | undefined {
    return this.#services && join(this.#options.directory(), INGRESS_KEY_FILE);
  }

  /** Number of requests that wait for a free node. */
  get waiting(): number {
    return this.#queues.waiting;
  }

  #policyFault(kind: PolicyFault, why: string): void {
    this.policyFaults++;
    const now = performance.now();
    if (now - this.#faultLoggedAt < FAULT_LOG_MS) return;
    this.#faultLoggedAt = now;
    this.#options.log(`the ingress's policy (${kind}): ${why}; using the default policy`);
  }

  /** Writes the key, then listens. Rejects if the address cannot be used. */
  async open(): Promise<void> {
    const { directory, host, port, log, requests, registry } = this.#options;
    this.#services = {
      key: IngressKey.make(directory()),
      unauthenticated: this.#unauthenticated,
      running: this.#running,
      watchers: new RegistryChangeStreams(),
      registry,
      trust: () => this.#trust([]),
      log,
      host: new IngressHost({
        nodes: registry.index,
        queues: this.#queues,
        policyFor: policyOf(this.#options.policy, (kind, why) => this.#policyFault(kind, why), this.#options.sharesOf),
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
    log(`ingress ${this.url}, its key is in ${this.keyFile}`);
    if (!isLoopback(host)) log(`warning: clients send keys and prompts to the ingress on ${host} unencrypted`);
  }

  /**
   * Returns the same object while this node's identity is the same, so that results that were filtered with this object
   * stay valid.
   */
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

  /** Refuses new requests, and requests that wait for a node. Resolves when all running requests have ended. */
  drain(): Promise<void> {
    this.#queues.close();
    return this.#running.drain();
  }

  /** Ends running requests; call `drain` first to let them finish. Idempotent. */
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
