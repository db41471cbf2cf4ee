/** Bindings and settings of the Worker. D1 and all objects but the relay are always there; what has a `?` may be missing. */
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

/** A service that is asked as if it were a server. */
interface Fetcher {
  fetch(url: string, init?: RequestInit): Promise<Response>;
}

/** The gateways of one institution. This gateway is the first or a follower. */
interface Institution {
  /** Where changes are made; undefined: here. */
  readonly first: string | undefined;
  /** The others' addresses. */
  gateways(): string[];
  /** For operators. */
  status(): object;
  /** Forgets a follower. @returns whether there was one */
  remove(key: string): boolean;
}

export interface Env extends IssuerEnvironment {
  DB: D1Database;
  /** The same for reads that take long, and hold up nothing; without it they are made of DB. */
  REPORTS?: D1Database;
  TUNNEL: ObjectNamespace<TunnelObject>;
  REGISTRY: ObjectNamespace<RegistryObject>;
  /** One per Cloudflare location; without it isolates ask the registry itself. */
  RELAY?: ObjectNamespace<RegistryRelay>;
  /** Counts what limits are about: one object per project, or per key without one. */
  LIMITS: ObjectNamespace<LimitsObject>;
  /** Who waits because no node is free: one object per model. */
  QUEUE: ObjectNamespace<QueueObject>;
  /** Raw usage records: one object per hour. */
  USAGE: ObjectNamespace<UsageObject>;
  /** One per batch. */
  BATCH: ObjectNamespace<BatchObject>;
  /** Batches that want nodes: one object per model. */
  BATCH_QUEUE: ObjectNamespace<BatchQueueObject>;
  /** One: what factories of jobs report, and what is wanted of them. */
  FACTORY: ObjectNamespace<FactoryObject>;
  /** Joins agents that cannot reach each other. Only where all objects are in one process and MESH_RELAY is not `off`. */
  CIRCUIT?: ObjectNamespace<CircuitObject>;
  /** Deletes files that have expired. */
  FILE_SWEEP: ObjectNamespace<FileSweepObject>;
  /** Bytes of files; without it there are no files and no batches. */
  FILES?: FileStore;
  /** Cloudflare: what FILES is made of. */
  BUCKET?: R2Bucket;
  /** Adds up what isolates and other objects count, for /metrics. */
  OBSERVE: ObjectNamespace<ObserveObject>;
  /** The dashboard's files; without it there is no page. */
  ASSETS?: Fetcher;
  /** The Node host: streamed answers leave by its own sockets. */
  LOCAL_OFFLOADS?: { of(session: string): ResponseOffload };
  /** The Node host: names the process. What asks this gateway's objects ends with it. */
  PROCESS_ID?: string;
  /** Hex SHA-256 of the bootstrap operator key; the key itself never reaches the Worker's environment. */
  ADMIN_KEY_SHA256?: string;
  /** Bytes of request bodies above 1 MiB that one isolate keeps for a retry. Default 48 MiB. */
  BODY_BUDGET_BYTES?: string;
  /** Bytes of request bodies on their way in, up to 1 MiB of each, that one isolate holds. Default 32 MiB; 128 MiB self-hosted. */
  BODY_UPLOADS_BYTES?: string;
  /** A body that brings less than 500 bytes a second for so long is given up. Default 30 s. */
  BODY_STALL_MS?: string;
  /** Largest body that is looked into; opaque bodies have no limit of ours. Default 33 MiB: a body of 32 MiB and what is around it. */
  BODY_LIMIT_BYTES?: string;
  /** `marked`: without any list only providers that are marked are trusted; else all that were admitted. A setting wins over it. */
  DEFAULT_TRUST?: string;
  /** On: agents are admitted that prove to be of a release which one of RELEASE_KEYS signed. Off by default, on in a release. */
  REQUIRE_SIGNED_AGENT?: string;
  /** Public keys of releases, base64url, between commas. */
  RELEASE_KEYS?: string;
  /** The oldest version of an agent that REQUIRE_SIGNED_AGENT admits. Default: OLDEST_VERSION of shared/release. */
  OLDEST_AGENT?: string;
  /** Days that raw records of use are kept. Default 400. */
  USAGE_KEPT_DAYS?: string;
  /** Records of use that wait in memory while the storage cannot be written, 1 KiB each; the oldest beyond are lost. Default 50000. */
  USAGE_HELD_RECORDS?: string;
  /** JSON: client secrets by issuer, of identity providers that want one. */
  OIDC_CLIENT_SECRETS?: string;
  /** `open`: the registry is public; else any valid key. */
  REGISTRY_ACCESS?: string;
  /** The bearer token that reads /metrics and nothing else. Without it only operators' keys read it. */
  OTELA_METRICS_TOKEN?: string;
  /**
   * `on`: an object that streams or has a socket lives as long as this process: no other one is ever asked for the rest, and it need not sleep.
   * So it is in the Node host.
   */
  OBJECTS_STAY?: string;
  /** The Node host: this gateway among others of its institution. */
  INSTITUTION?: Institution;
  /** Which requests are logged: `error` (default), `all` or `off`. */
  REQUEST_LOG?: string;
}
