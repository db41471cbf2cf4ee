/** Bindings and settings of the Worker. Members with `?` may be missing; all others are always set. */
import type { LimitsObject } from './accounts/limits/limits-object.ts';
import type { BatchObject } from './batch/batch-object.ts';
import type { BatchQueueObject } from './batch/leases/queue-object.ts';
import type { CircuitObject } from './circuit/circuit-object.ts';
import type { FactoryObject } from './factory/object.ts';
import type { FileStore } from './files/file-store.ts';
import type { FileSweepObject } from './files/sweep-object.ts';
import type { IssuerEnvironment } from './issuer/issuer.ts';
import type { ObserveObject } from './observe/object.ts';
import type { ObjectNamespace } from './platform/object-context.ts';
import type { QueueObject } from './queue/object.ts';
import type { RegistryRelay } from './registry/gossip/snapshot-cache-object.ts';
import type { RegistryObject } from './registry/object.ts';
import type { TunnelObject } from './tunnel/object.ts';
import type { ResponseOffload } from './tunnel/offload/response-offload.ts';
import type { UsageObject } from './usage/object.ts';

/** A binding that is called like a server. */
interface Fetcher {
  fetch(url: string, init?: RequestInit): Promise<Response>;
}

/** The gateways of one institution. This gateway is the primary or a follower. */
interface Institution {
  /** URL of the primary, which makes all changes. Undefined: this gateway is the primary. */
  readonly first: string | undefined;
  /** URLs of the other gateways. */
  gateways(): string[];
  /** The replication status, for operators. */
  status(): object;
  /** Removes a follower. @returns whether it was known */
  remove(key: string): boolean;
}

export interface Env extends IssuerEnvironment {
  DB: D1Database;
  /** The same database for long reads, which block nothing here. Absent: they use DB. */
  REPORTS?: D1Database;
  TUNNEL: ObjectNamespace<TunnelObject>;
  REGISTRY: ObjectNamespace<RegistryObject>;
  /** One per Cloudflare location. Absent: isolates ask the registry itself. */
  RELAY?: ObjectNamespace<RegistryRelay>;
  /** Counters of limits: one object per project, or per key without a project. */
  LIMITS: ObjectNamespace<LimitsObject>;
  /** Requests that wait because no node is free: one object per model. */
  QUEUE: ObjectNamespace<QueueObject>;
  /** Raw usage records: one object per hour. */
  USAGE: ObjectNamespace<UsageObject>;
  /** One per batch. */
  BATCH: ObjectNamespace<BatchObject>;
  /** Batches that need nodes: one object per model. */
  BATCH_QUEUE: ObjectNamespace<BatchQueueObject>;
  /** One object: reports of autoscalers, and the demand for their models. */
  FACTORY: ObjectNamespace<FactoryObject>;
  /** Joins agents that cannot reach each other. Only if all objects are in one process and MESH_RELAY is not `off`. */
  CIRCUIT?: ObjectNamespace<CircuitObject>;
  /** `off`: this gateway joins no agents that cannot reach each other. */
  MESH_RELAY?: string;
  /** Deletes files that have expired. */
  FILE_SWEEP: ObjectNamespace<FileSweepObject>;
  /** Contents of files. Absent: there are no files and no batches. */
  FILES?: FileStore;
  /** Cloudflare: the bucket behind FILES. */
  BUCKET?: R2Bucket;
  /** Adds up the counts of isolates and other objects, for /metrics. */
  OBSERVE: ObjectNamespace<ObserveObject>;
  /** The dashboard's files. Absent: there is no dashboard. */
  ASSETS?: Fetcher;
  /** The Node host: streaming responses are sent through its own sockets. */
  LOCAL_OFFLOADS?: { of(session: string): ResponseOffload };
  /** The Node host: names the process. A request from this process to an object ends with the process. */
  PROCESS_ID?: string;
  /** Hex SHA-256 of the bootstrap operator key; the Worker never gets the key itself. */
  ADMIN_KEY_SHA256?: string;
  /** Bytes of request bodies above 1 MiB that an isolate keeps for a retry. Default 48 MiB. */
  BODY_BUDGET_BYTES?: string;
  /**
   * Bytes of request bodies that an isolate holds while they arrive, up to 1 MiB of each. Default 32 MiB; 128 MiB
   * self-hosted.
   */
  BODY_UPLOADS_BYTES?: string;
  /** A body that brings less than 500 bytes a second for this long is given up. Default 30 s. */
  BODY_STALL_MS?: string;
  /**
   * Largest body that the gateway parses; opaque bodies have no limit here. Default 33 MiB: a body of 32 MiB plus its
   * envelope.
   */
  BODY_LIMIT_BYTES?: string;
  /**
   * `marked`: without any list only marked providers are trusted; otherwise all admitted providers. A setting overrides
   * it.
   */
  DEFAULT_TRUST?: string;
  /**
   * On: only agents are admitted that prove to be from a release which one of RELEASE_KEYS signed. Off by default, on
   * in a release.
   */
  REQUIRE_SIGNED_AGENT?: string;
  /** Public keys of releases, base64url, comma-separated. */
  RELEASE_KEYS?: string;
  /** The oldest version of an agent that REQUIRE_SIGNED_AGENT admits. Default: OLDEST_VERSION of shared/release. */
  OLDEST_AGENT?: string;
  /** Days that raw usage records are kept. Default 400. */
  USAGE_KEPT_DAYS?: string;
  /**
   * Usage records that wait in memory while the storage cannot be written, 1 KiB each; beyond this the oldest are lost.
   * Default 50000.
   */
  USAGE_HELD_RECORDS?: string;
  /** JSON: client secrets by issuer, for identity providers that require one. */
  OIDC_CLIENT_SECRETS?: string;
  /** `open`: the registry is public; otherwise any valid key may read it. */
  REGISTRY_ACCESS?: string;
  /** The bearer token that only allows reading /metrics. Absent: only operators' keys may read it. */
  OTELA_METRICS_TOKEN?: string;
  /**
   * `on`: an object that streams or has a socket lives as long as this process, so no successor is ever asked for the
   * rest, and the object need not sleep. Set by the Node host.
   */
  OBJECTS_STAY?: string;
  /** The Node host: this gateway's role in its institution. */
  INSTITUTION?: Institution;
  /** Which requests are logged: `error` (default), `all` or `off`. */
  REQUEST_LOG?: string;
}
