/** A gateway in this process: its objects, its accounts and its HTTP server. */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startInterval } from '../../../node/timers.ts';
import { leastLoadPolicy } from '../../../shared/routing/policies/least-load.ts';
import { guardPolicy } from '../../../shared/routing/policies/operator-policies.ts';
import type { Policy } from '../../../shared/routing/routing-policy.ts';
import { LimitsObject } from '../../accounts/limits/limits-object.ts';
import { ConfirmationObject } from '../../accounts/login/confirmation-object.ts';
import { BatchObject } from '../../batch/batch-object.ts';
import { BatchQueueObject } from '../../batch/leases/batch-queue-object.ts';
import { CircuitObject } from '../../circuit/circuit-object.ts';
import { ConversationsObject } from '../../conversations/conversations-object.ts';
import type { Env } from '../../env.ts';
import { FactoryObject } from '../../factory/factory-object.ts';
import type { FileStore } from '../../files/file-store.ts';
import { FileSweepObject } from '../../files/sweep-object.ts';
import type { ReleaseFiles } from '../../install/install-routes.ts';
import { NotificationObject } from '../../notifications/notification-object.ts';
import { POLICY_FAULTS } from '../../observe/metric-families.ts';
import { MetricsReporter } from '../../observe/metrics-reporter.ts';
import { ObserveObject } from '../../observe/observe-object.ts';
import { StoredResponsesObject } from '../../openai/stored-responses.ts';
import type { ObjectClass } from '../../platform/gateway-object.ts';
import { enableTurnClock } from '../../platform/wait-clock.ts';
import { QueueObject } from '../../queue/queue-object.ts';
import { RegistryObject } from '../../registry/registry-object.ts';
import { setLoadedPolicies } from '../../routing/custom-policies.ts';
import { StatusObject } from '../../status/status-object.ts';
import { TunnelObject } from '../../tunnel/tunnel-object.ts';
import { UsageObject } from '../../usage/hour/usage-hour-object.ts';
import type { AccountsFile, AccountsStore } from './accounts-store.ts';
import { nodeClientWebSockets } from './client-websockets.ts';
import type { SharedObjects, SharingContext } from './cluster/shared-objects.ts';
import { HttpServer, type TlsMaterial } from './http-server.ts';
import { LocalOffloads } from './local-offload.ts';
import { ObjectHost } from './object-host.ts';
import { ReportReads } from './reports/report-reads.ts';
import { smtpMailer } from './smtp-mailer.ts';

/** Minimum interval between two log lines about the same kind of fault of an operator's policy. */
const LOG_INTERVAL_MS = 60_000;

interface GatewayServices {
  env: Env;
  log(line: string): void;
  waitUntil(work: Promise<unknown>): void;
}

function loggedPolicy(policy: Policy, { env, log, waitUntil }: GatewayServices): Policy {
  const reporter = new MetricsReporter();
  const loggedAt = new Map<string, number>();
  return guardPolicy(policy, {
    fallback: leastLoadPolicy,
    now: () => performance.now(),
    cpuMs,
    onFault: (kind, why) => {
      reporter.counts.count(POLICY_FAULTS, [policy.name, kind]);
      reporter.touch(env, { waitUntil }, Date.now());
      const now = performance.now();
      if (now - (loggedAt.get(kind) ?? Number.NEGATIVE_INFINITY) < LOG_INTERVAL_MS) return;
      loggedAt.set(kind, now);
      log(`policy ${policy.name}: ${why}; using the default policy`);
    },
  });
}

/** Processor time of this thread in milliseconds. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

/** Serves the dashboard's files from a directory. Names come from the dashboard's routes, which allow no `..`. */
class Assets {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async fetch(url: string): Promise<Response> {
    const { pathname } = new URL(url); // `URL` removes `..` from the path.
    try {
      return new Response(await readFile(join(this.#directory, pathname)));
    } catch {
      return new Response(null, { status: 404 });
    }
  }
}

/** Classes of objects by their binding's name, which is also the name of their directory. */
const CLASSES = {
  TUNNEL: TunnelObject,
  REGISTRY: RegistryObject,
  LIMITS: LimitsObject,
  USAGE: UsageObject,
  RESPONSES: StoredResponsesObject,
  QUEUE: QueueObject,
  OBSERVE: ObserveObject,
  BATCH: BatchObject,
  BATCH_QUEUE: BatchQueueObject,
  FACTORY: FactoryObject,
  FILE_SWEEP: FileSweepObject,
  NOTIFICATIONS: NotificationObject,
  CONFIRMATION: ConfirmationObject,
  STATUS: StatusObject,
  CONVERSATIONS: ConversationsObject,
  CIRCUIT: CircuitObject,
} satisfies Record<string, ObjectClass>;

export interface NodeGatewayOptions {
  /** Directory of the objects' files: an existing absolute path. */
  objects: string;
  /** The accounts: in a file, or in PostgreSQL. The gateway closes them. */
  accounts: AccountsFile | AccountsStore;
  assets: string;
  files: FileStore;
  /** Files of the release that agents install. */
  release: ReleaseFiles;
  /** Settings and secrets from the environment; see gateway/env.ts. */
  settings: Record<string, string | undefined>;
  tls: TlsMaterial | undefined;
  /** Policies from the file of `--policy`. */
  policies: readonly Policy[];
  /** How long a known account is used while PostgreSQL cannot be reached. */
  maxStaleMs?: number;
  /** Opens the objects that this process shares with others. Undefined: it is the only process. */
  cluster: ((context: SharingContext) => SharedObjects) | undefined;
  log(line: string): void;
}

interface GatewayParts {
  stopping: AbortController;
  server: HttpServer;
  host: ObjectHost;
  accounts: AccountsStore;
  reports: ReportReads;
  cluster: SharedObjects | undefined;
}

export class NodeGateway {
  readonly #stopping: AbortController;
  readonly #server: HttpServer;
  readonly #host: ObjectHost;
  readonly #accounts: AccountsStore;
  readonly #reports: ReportReads;
  readonly #cluster: SharedObjects | undefined;

  private constructor({ stopping, server, host, accounts, reports, cluster }: GatewayParts) {
    this.#stopping = stopping;
    this.#server = server;
    this.#host = host;
    this.#accounts = accounts;
    this.#reports = reports;
    this.#cluster = cluster;
  }

  static async open(options: NodeGatewayOptions): Promise<NodeGateway> {
    enableTurnClock(startInterval);
    const { objects, accounts, assets, files, settings, tls, log } = options;
    const hours = join(objects, 'USAGE');
    const file = 'file' in accounts ? accounts.file : undefined;
    const waitUntil = (work: Promise<unknown>) =>
      work.catch((error: unknown) => log(`background task failed: ${error}`));
    const reports = new ReportReads(hours);
    const offloads = new LocalOffloads();
    const stopping = new AbortController();
    const host: ObjectHost = new ObjectHost({ directory: objects, classes: CLASSES, env: () => env, log });
    const cluster = options.cluster?.({ local: host, classes: CLASSES, env: () => env, waitUntil, log });
    const shared = cluster ?? host;
    const env: Env = {
      ...settings,
      DB: accounts.db,
      REPORTS: accounts.reports ?? (file === undefined ? accounts.db : reports.accounts(file.path, accounts.db)),
      TUNNEL: shared.namespace<TunnelObject>('TUNNEL'),
      REGISTRY: shared.namespace<RegistryObject>('REGISTRY'),
      LIMITS: cluster?.limits ?? host.namespace<LimitsObject>('LIMITS'),
      USAGE: cluster?.usage ?? reports.hours(host.namespace<UsageObject>('USAGE')),
      RESPONSES: shared.namespace<StoredResponsesObject>('RESPONSES'),
      QUEUE: shared.namespace<QueueObject>('QUEUE'),
      OBSERVE: host.namespace<ObserveObject>('OBSERVE'),
      BATCH: shared.namespace<BatchObject>('BATCH'),
      BATCH_QUEUE: shared.namespace<BatchQueueObject>('BATCH_QUEUE'),
      FACTORY: shared.namespace<FactoryObject>('FACTORY'),
      FILE_SWEEP: shared.namespace<FileSweepObject>('FILE_SWEEP'),
      NOTIFICATIONS: shared.namespace<NotificationObject>('NOTIFICATIONS'),
      CONFIRMATION: shared.namespace<ConfirmationObject>('CONFIRMATION'),
      STATUS: shared.namespace<StatusObject>('STATUS'),
      CONVERSATIONS: shared.namespace<ConversationsObject>('CONVERSATIONS'),
      ...(cluster === undefined && { CIRCUIT: host.namespace<CircuitObject>('CIRCUIT') }),
      FILES: files,
      RELEASE: options.release,
      ...(settings.SMTP_URL && { MAILER: smtpMailer(settings.SMTP_URL) }),
      ASSETS: new Assets(assets),
      LOCAL_OFFLOADS: offloads,
      ...(file === undefined && {
        DATABASE_STATE: () => ({ pools: [...accounts.pools(), ...(cluster?.pools() ?? [])] }),
        ...(options.maxStaleMs !== undefined && { MAX_STALE_MS: options.maxStaleMs }),
      }),
      // The owner of all objects: its running requests have ended with its process.
      ...((file !== undefined || cluster === undefined) && { PROCESS_ID: crypto.randomUUID() }),
      ...(cluster && { PROCESSES: cluster.processes }),
      STOPPING: stopping.signal,
      OBJECTS_STAY: 'on',
      CLIENT_WEBSOCKETS: nodeClientWebSockets,
    };
    setLoadedPolicies(options.policies.map((policy) => loggedPolicy(policy, { env, log, waitUntil })));
    const server = new HttpServer({ tls, env, offloads, background: { waitUntil } });
    return new NodeGateway({ stopping, server, host, accounts, reports, cluster });
  }

  /** Resolves to the port. */
  async listen(port: number, host: string): Promise<number> {
    await this.#cluster?.open();
    const taken = await this.#server.listen(port, host);
    this.#host.start();
    return taken;
  }

  reload(tls: TlsMaterial): void {
    this.#server.reload(tls);
  }

  async close(drainMs: number): Promise<void> {
    this.#stopping.abort();
    await this.#server.close(drainMs);
    await this.#reports.close();
    await this.#cluster?.close();
    this.#host.close();
    await this.#accounts.close();
  }
}
