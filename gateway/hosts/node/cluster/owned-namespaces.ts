/** The objects of a process that shares them with other processes: from its start to its end. */
import { mkdirSync, rmSync } from 'node:fs';
import type { LimitsObject } from '../../../accounts/limits/limits-object.ts';
import { CommandError } from '../../../command-error.ts';
import type { Env, PoolState } from '../../../env.ts';
import { metricsReporter } from '../../../observe/request-log.ts';
import type { GatewayObject } from '../../../platform/gateway-object.ts';
import type { ObjectNamespace } from '../../../platform/object-context.ts';
import { StorageHealth, storageHealth } from '../../../platform/storage/storage-health.ts';
import type { UsageObject } from '../../../usage/hour/usage-hour-object.ts';
import { ObjectHost, stubsOf } from '../object-host.ts';
import { UsageRecords } from '../postgresql/usage/usage-records.ts';
import { REUSE_PORT } from '../serve/process-count.ts';
import { AuditLogReader } from './audit-log-reader.ts';
import { Cluster } from './cluster.ts';
import { LimitShares } from './limit-shares.ts';
import { Membership } from './membership.ts';
import type { ClusterParts } from './open-cluster.ts';
import { LoggedObjects } from './owned-objects.ts';
import type { SharedObjects, SharingContext } from './shared-objects.ts';
import { tunnelReports } from './tunnel-reports.ts';
import { TurnLog } from './turn-log.ts';

/** Time to store what waits when the process stops. */
const CLOSE_MS = 5_000;

interface OwnedNamespacesOptions extends SharingContext {
  parts: ClusterParts;
}

export class OwnedNamespaces implements SharedObjects {
  readonly #options: OwnedNamespacesOptions;
  readonly #owned: ObjectHost;
  readonly #log: TurnLog;
  readonly #cluster: Cluster;
  readonly #usage: UsageRecords;
  readonly #audit: AuditLogReader;

  constructor(options: OwnedNamespacesOptions) {
    this.#options = options;
    const { parts, local, classes, env, waitUntil, log } = options;
    this.#usage = new UsageRecords({ url: parts.url, env, background: { waitUntil }, log });
    const { control, objects: pool, me, key, scratch } = parts;
    // What an earlier process left there is in PostgreSQL.
    rmSync(scratch, { recursive: true, force: true });
    mkdirSync(scratch, { mode: 0o700 });
    this.#audit = new AuditLogReader(pool, log);
    const health = new StorageHealth((line) => log(`PostgreSQL: ${line}`));
    this.#log = new TurnLog({ pool, onHealth: (failure) => health.setFailure(failure ?? null, Date.now()) });
    const owned = new LoggedObjects({ pool, log: this.#log, me: me.incarnation, health, report: log });
    // An object outlives the process that stops, so its callers must not be refused.
    const envOfOwned = () => {
      const { STOPPING: _, ...rest } = env();
      return rest;
    };
    this.#owned = new ObjectHost({ directory: scratch, classes, env: envOfOwned, log, owned });
    this.#cluster = new Cluster({
      key,
      membership: (events) =>
        new Membership({ connection: control, me, events, stores: () => storageHealth.failure === undefined }),
      me,
      sharedPort: process.env[REUSE_PORT],
      report: () => metricsReporter.flush(env()),
      local,
      owned: this.#owned,
      ...tunnelReports(env, log),
      log,
    });
  }

  get processes(): NonNullable<Env['PROCESSES']> {
    return {
      number: this.#options.parts.me.process,
      incarnation: this.#options.parts.me.incarnation,
      isRunning: (incarnation) => this.#cluster.isRunning(incarnation),
      isConnected: (session) => this.#cluster.isConnected(session),
      databaseSilentMs: () => this.#cluster.databaseSilentMs(),
      isStale: (account) => this.#audit.isStale(account),
      urlsFor: (session) => this.#cluster.urlsFor(session),
      observers: (of) => this.#cluster.observers(of),
      state: () => ({ ...this.#cluster.state(), unstored: this.#log.waiting }),
    };
  }

  pools(): PoolState[] {
    const { control, objects } = this.#options.parts;
    return [control.state, objects.state];
  }

  /** Usage records are in tables of PostgreSQL, not in objects. */
  get usage(): ObjectNamespace<UsageObject> {
    return this.#usage.namespace;
  }

  get limits(): ObjectNamespace<LimitsObject> {
    const { parts } = this.#options;
    const shares = new LimitShares({
      limits: this.namespace<LimitsObject>('LIMITS'),
      isOwner: (subject) => this.#cluster.isOwner(`LIMITS/${subject}`),
      processes: () => this.#cluster.processes,
      source: parts.me.incarnation,
      now: () => performance.now(),
      after: (ms, call) => setTimeout(call, ms).unref(),
    });
    return shares.namespace;
  }

  namespace<T extends GatewayObject>(className: string): ObjectNamespace<T> {
    const Room = this.#options.classes[className];
    if (Room === undefined) throw new Error(`there is no class ${className}`);
    return stubsOf(className, Room, this.#cluster);
  }

  async open(): Promise<void> {
    const { flags, me } = this.#options.parts;
    const { host, port } = flags;
    const taken = await this.#cluster.open(host, port).catch((cause: Error) => {
      throw new CommandError(`--cluster-address ${host}:${port} cannot be used: ${cause.message}`, { cause });
    });
    me.address = `${host.includes(':') ? `[${host}]` : host}:${taken}`;
    await this.#cluster.join();
    this.#owned.start();
    await this.#audit.read();
    this.#audit.start();
  }

  async close(): Promise<void> {
    await this.#audit.stop();
    await this.#cluster.close();
    await this.#log.close(CLOSE_MS);
    this.#owned.close();
    await this.#usage.close();
    await this.#options.parts.close();
  }
}
