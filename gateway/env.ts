/** Bindings and environment settings of the gateway. Members with `?` may be missing; all others are always set. */
import type { DrizzleD1Database } from 'drizzle-orm/d1';
import type { Account } from './accounts/account.ts';
import type { LimitsObject } from './accounts/limits/limits-object.ts';
import type { ConfirmationObject } from './accounts/login/confirmation-object.ts';
import type { SqlFragments } from './accounts/sql-fragments.ts';
import type { BatchObject } from './batch/batch-object.ts';
import type { BatchQueueObject } from './batch/leases/batch-queue-object.ts';
import type { CircuitObject } from './circuit/circuit-object.ts';
import type { ConversationsObject } from './conversations/conversations-object.ts';
import type { FactoryObject } from './factory/factory-object.ts';
import type { FileStore } from './files/file-store.ts';
import type { FileSweepObject } from './files/sweep-object.ts';
import type { ClientWebSockets } from './http/client-websocket.ts';
import type { ReleaseFiles } from './install/install-routes.ts';
import type { IssuerEnvironment } from './issuer/issuer.ts';
import type { Mailer } from './notifications/mail-target.ts';
import type { NotificationObject } from './notifications/notification-object.ts';
import type { ObserveObject } from './observe/observe-object.ts';
import type { OtherObserver } from './observe/other-processes.ts';
import type { StoredResponsesObject } from './openai/stored-responses.ts';
import type { ObjectNamespace } from './platform/object-context.ts';
import type { QueueObject } from './queue/queue-object.ts';
import type { RegistryObject } from './registry/registry-object.ts';
import type { SnapshotCacheObject } from './registry/snapshot-cache-object.ts';
import type { StatusObject } from './status/status-object.ts';
import type { ResponseOffload } from './tunnel/offload/response-offload.ts';
import type { TunnelObject } from './tunnel/tunnel-object.ts';
import type { UsageObject } from './usage/hour/usage-hour-object.ts';

/** A binding that is called like an HTTP server. */
interface Fetcher {
  fetch(url: string, init?: RequestInit): Promise<Response>;
}

/** Connections to PostgreSQL of this process. */
export interface DatabaseState {
  pools: readonly PoolState[];
}

export interface PoolState {
  name: string;
  busy: number;
  idle: number;
  /** Statements that wait for a connection. */
  waiting: number;
}

/** This process among the processes that share the database. */
export interface ProcessState {
  /** Milliseconds since the database answered a heartbeat of this process; infinite: never. */
  databaseSilentMs: number;
  /** Running processes, including this one. */
  processes: number;
  /** Slots of objects that this process owns. */
  slots: number;
  /** Objects with changes that the database does not have yet. */
  unstored: number;
}

/** The processes that share this installation. */
interface Processes {
  /** Number of this process's data directory; no other process has it. */
  readonly number: number;
  /** Names one run of this process. */
  readonly incarnation: string;
  /** True if a process runs, as far as this one knows. */
  isRunning(incarnation: string): boolean;
  /** True if the session's agent is connected to any process. */
  isConnected(session: string): boolean;
  /** Milliseconds since the database answered a heartbeat of this process. */
  databaseSilentMs(): number;
  /** True if another process changed something on which the account depends, after the account was read. */
  isStale(account: Pick<Account, 'keyId' | 'grantedBy' | 'userId' | 'projectId' | 'seen'>): boolean;
  /** URLs of the processes to which this session's agent should have sockets. */
  urlsFor(session: string): string[];
  /** The observe objects of the other processes. `port`: those of processes at another port reject calls. */
  observers(of: 'all' | 'port'): OtherObserver[];
  state(): ProcessState;
}

export interface Env extends IssuerEnvironment {
  DB: D1Database & {
    /** If the accounts are in PostgreSQL: its queries and the SQL that it writes differently. */
    readonly dialect?: { readonly queries: DrizzleD1Database; readonly fragments: SqlFragments };
  };
  /**
   * Another connection to the database of DB, for long queries: these queries do not block other requests. Absent:
   * reports use DB.
   */
  REPORTS?: Env['DB'];
  TUNNEL: ObjectNamespace<TunnelObject>;
  REGISTRY: ObjectNamespace<RegistryObject>;
  /**
   * Snapshot caches, one object per Cloudflare location; the name of the binding cannot change. Absent: isolates call
   * the registry object.
   */
  RELAY?: ObjectNamespace<SnapshotCacheObject>;
  /** Limits: one object per project, or per user or key without a project. */
  LIMITS: ObjectNamespace<LimitsObject>;
  /** Where engines stored responses: one object per project, or per key without a project. */
  RESPONSES: ObjectNamespace<StoredResponsesObject>;
  /** Requests that wait because no node is free: one object per model. */
  QUEUE: ObjectNamespace<QueueObject>;
  /** Raw usage records: one object per hour. */
  USAGE: ObjectNamespace<UsageObject>;
  /** Batches: one object per batch. */
  BATCH: ObjectNamespace<BatchObject>;
  /** Queues of batches that need nodes: one object per model. */
  BATCH_QUEUE: ObjectNamespace<BatchQueueObject>;
  /** Reports of autoscalers, and the demand for their models: a single object. */
  FACTORY: ObjectNamespace<FactoryObject>;
  /** Circuits between agents that cannot reach each other: a single object. Absent: several processes share a gateway. */
  CIRCUIT?: ObjectNamespace<CircuitObject>;
  /** Accepts clients' WebSockets for `/v1/realtime`. Absent: this host accepts none. */
  CLIENT_WEBSOCKETS?: ClientWebSockets;
  /** `off`: this gateway carries no circuits. */
  MESH_RELAY?: string;
  /** Deletes expired files: a single object. */
  FILE_SWEEP: ObjectNamespace<FileSweepObject>;
  /** Asks identity providers about people that logged in: a single object. */
  CONFIRMATION: ObjectNamespace<ConfirmationObject>;
  /** Conversations that people keep here, by user. */
  CONVERSATIONS: ObjectNamespace<ConversationsObject>;
  /** Checks the models of the public status page: a single object. */
  STATUS: ObjectNamespace<StatusObject>;
  /** Sends events to webhooks: a single object. */
  NOTIFICATIONS: ObjectNamespace<NotificationObject>;
  /** Contents of files. Absent: files and batches are disabled. */
  FILES?: FileStore;
  /** On Cloudflare: the bucket that FILES uses. */
  BUCKET?: R2Bucket;
  /** Sums the counters of isolates and other objects, for /metrics: a single object. */
  OBSERVE: ObjectNamespace<ObserveObject>;
  /** The dashboard's files. Absent: this gateway has no dashboard. */
  ASSETS?: Fetcher;
  /** Files of the release that agents install from this gateway. Absent: it has none. */
  RELEASE?: ReleaseFiles;
  /**
   * On the Node host: writes streaming responses directly to clients' sockets; see response offload in
   * docs/glossary.md.
   */
  LOCAL_OFFLOADS?: { of(session: string): ResponseOffload };
  /**
   * On the Node host: id of this process. If an object's stored requests came from another process, they have ended,
   * because that process has ended.
   */
  PROCESS_ID?: string;
  /**
   * On the Node host, if the accounts are in PostgreSQL: how long a known account is used while PostgreSQL cannot be
   * reached.
   */
  MAX_STALE_MS?: number;
  /** On the Node host, if the accounts are in PostgreSQL. */
  DATABASE_STATE?: () => DatabaseState;
  /** On the Node host, if several processes share the objects. */
  PROCESSES?: Processes;
  /** On the Node host: aborted when this process begins to stop. Requests then no longer wait for a node. */
  STOPPING?: AbortSignal;
  /** SHA-256 (hex) of the operator's first key. The Worker never gets the key itself. */
  ADMIN_KEY_SHA256?: string;
  /** Maximum bytes of request bodies above 1 MiB that an isolate keeps for retries. Default 48 MiB. */
  BODY_BUDGET_BYTES?: string;
  /**
   * Maximum memory of an isolate, in bytes, for the first MiB of each request body that is still arriving. Default 32
   * MiB; 128 MiB self-hosted.
   */
  BODY_UPLOADS_BYTES?: string;
  /** A request body that arrives at less than 500 bytes a second for this time is aborted. Default 30 s. */
  BODY_STALL_MS?: string;
  /**
   * Maximum bytes of a body that the gateway parses; other bodies have no limit. Default 33 MiB: a body of 32 MiB and
   * its envelope.
   */
  BODY_LIMIT_BYTES?: string;
  /**
   * Which providers are trusted if neither key, project nor request names any. `admitted` or empty: all admitted
   * providers; any other value: only providers with `trusted_by_default`. The setting `default_trust` overrides it.
   */
  DEFAULT_TRUST?: string;
  /** Region of this gateway, as nodes name regions: a plan may have other shares for it. Absent: no region. */
  GATEWAY_REGION?: string;
  /**
   * If on, an agent is admitted only if it proves that one of RELEASE_KEYS signed its release. Default: on if the
   * gateway is from a signed release, otherwise off.
   */
  REQUIRE_SIGNED_AGENT?: string;
  /** Public keys of releases, base64url, comma-separated. */
  RELEASE_KEYS?: string;
  /**
   * Oldest agent version that is admitted if REQUIRE_SIGNED_AGENT is on. Default: OLDEST_VERSION of shared/release. The
   * setting `minimum_agent_version` always applies.
   */
  OLDEST_AGENT?: string;
  /** Days for which raw usage records are kept. Default 400. */
  USAGE_KEPT_DAYS?: string;
  /**
   * Maximum usage records that wait in memory while the storage cannot be written, 1 KiB each. Above this number the
   * oldest records are lost. Default 50000.
   */
  USAGE_HELD_RECORDS?: string;
  /** Client secrets of identity providers that require one. JSON: secrets by issuer. */
  OIDC_CLIENT_SECRETS?: string;
  /** Server for mail about events: `smtp://` or `smtps://`, with user and password. Only on the Node host. */
  SMTP_URL?: string;
  /** Sends mail; absent: mail is disabled. */
  MAILER?: Mailer;
  /** Path below which a proxy shows this gateway, from `serve --base-path`; only on the Node host. */
  BASE_PATH?: string;
  /** Secrets that sign webhooks, each `whsec_` and base64. JSON: secrets by URL. */
  WEBHOOK_SECRETS?: string;
  /**
   * Pages of these origins may call `/v1` with a key: `*` (default), `off`, or origins separated by commas. See
   * http/cross-origin.ts.
   */
  CORS_ORIGINS?: string;
  /** `open`: the registry is public. Otherwise any valid key may read it. */
  REGISTRY_ACCESS?: string;
  /** Bearer token that only allows reading /metrics. Absent: only operators' keys may read it. */
  OTELA_METRICS_TOKEN?: string;
  /**
   * `on`: an object that streams or has a socket stays in memory as long as this process runs, so its streams never
   * move to another instance of the object. Set by the Node host.
   */
  OBJECTS_STAY?: string;
  /** Which requests are logged: `error` (default), `all` or `off`. */
  REQUEST_LOG?: string;
}
