/**
 * Objects of a process on a host with several processes that share a data directory (`--processes N` without a database).
 * The process OWNER has the accounts and all objects but the tunnels of the others.
 */
import { join } from 'node:path';
import type { LimitsObject } from '../../../accounts/limits/limits-object.ts';
import type { Env, PoolState } from '../../../env.ts';
import { metricsReporter } from '../../../observe/request-log.ts';
import type { GatewayObject } from '../../../platform/gateway-object.ts';
import type { ObjectNamespace } from '../../../platform/object-context.ts';
import type { UsageObject } from '../../../usage/hour/usage-hour-object.ts';
import { stubsOf } from '../object-host.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';
import { ReportReads } from '../reports/report-reads.ts';
import { REUSE_PORT } from '../serve/process-count.ts';
import { AuditLogReader } from './audit-log-reader.ts';
import { Cluster } from './cluster.ts';
import { readClusterKey } from './cluster-key.ts';
import { DirectoryMembership, LINK_KEY_FILE, OWNER } from './directory-membership.ts';
import { LimitShares } from './limit-shares.ts';
import { ACCOUNTS, type LinkedAccounts, runStatements } from './linked-accounts.ts';
import type { ProcessIdentity } from './process-table.ts';
import type { SharedObjects, SharingContext } from './shared-objects.ts';
import { tunnelReports } from './tunnel-reports.ts';

const HOST = '127.0.0.1';

export interface DirectoryParts {
  /** Directory of the processes' files, which has the key of their links. */
  directory: string;
  /** Directory of the usage records. */
  hours: string;
  me: ProcessIdentity;
  /** Undefined: this process has the accounts. */
  accounts: LinkedAccounts | undefined;
}

export class DirectoryObjects implements SharedObjects {
  readonly #parts: DirectoryParts;
  readonly #context: SharingContext;
  readonly #cluster: Cluster;
  readonly #audit: AuditLogReader;
  readonly #reads: ReportReads;

  constructor(parts: DirectoryParts, context: SharingContext) {
    this.#parts = parts;
    this.#context = context;
    const { directory, me, accounts, hours } = parts;
    const { local, env, log } = context;
    this.#reads = new ReportReads(hours);
    this.#audit = new AuditLogReader(
      connectionOf(() => env().DB),
      log,
    );
    this.#cluster = new Cluster({
      key: readClusterKey(join(directory, LINK_KEY_FILE)),
      membership: (events) => new DirectoryMembership({ directory, me, events, now: () => performance.now() }),
      me,
      sharedPort: process.env[REUSE_PORT],
      report: () => metricsReporter.flush(env()),
      local,
      owned: {
        call: (className, name, method, args) =>
          className === ACCOUNTS ? runStatements(env().DB, method, args) : local.call(className, name, method, args),
        fetch: (className, name, request) => local.fetch(className, name, request),
        addAlarms: () => {},
        resetAll: () => {},
        release: async () => {},
      },
      ...tunnelReports(env, log),
      log,
    });
    if (accounts !== undefined)
      accounts.call = (method, statements) => this.#cluster.call(ACCOUNTS, '', method, [statements]);
  }

  get processes(): NonNullable<Env['PROCESSES']> {
    return {
      number: this.#parts.me.process,
      incarnation: this.#parts.me.incarnation,
      isRunning: (incarnation) => this.#cluster.isRunning(incarnation),
      isConnected: (session) => this.#cluster.isConnected(session),
      databaseSilentMs: () => this.#cluster.databaseSilentMs(),
      isStale: (account) => this.#audit.isStale(account),
      urlsFor: () => [],
      observers: (of) => this.#cluster.observers(of),
      state: () => ({ ...this.#cluster.state(), unstored: 0 }),
    };
  }

  pools(): PoolState[] {
    return [];
  }

  get usage(): ObjectNamespace<UsageObject> {
    return this.#reads.hours(this.namespace<UsageObject>('USAGE'));
  }

  get limits(): ObjectNamespace<LimitsObject> {
    const limits = this.namespace<LimitsObject>('LIMITS');
    if (this.#parts.me.process === OWNER) return limits;
    const shares = new LimitShares({
      limits,
      isOwner: () => false,
      processes: () => this.#cluster.processes,
      source: this.#parts.me.incarnation,
      now: () => performance.now(),
      after: (ms, call) => setTimeout(call, ms).unref(),
    });
    return shares.namespace;
  }

  namespace<T extends GatewayObject>(className: string): ObjectNamespace<T> {
    const Room = this.#context.classes[className];
    if (Room === undefined) throw new Error(`there is no class ${className}`);
    return stubsOf(className, Room, this.#cluster);
  }

  async open(): Promise<void> {
    const { me } = this.#parts;
    me.address = `${HOST}:${await this.#cluster.open(HOST, 0)}`;
    await this.#cluster.join();
    await this.#audit.read();
    this.#audit.start();
  }

  async close(): Promise<void> {
    await this.#audit.stop();
    await this.#cluster.close();
    await this.#reads.close();
  }
}

/** The accounts as AuditLogReader reads them. */
function connectionOf(db: () => Env['DB']): Connection {
  return {
    query: async (text, values = []) => {
      const rows = await db()
        .prepare(text.replaceAll('$', '?'))
        .bind(...values)
        .raw<(string | number | null)[]>();
      return { columns: [], rows, count: rows.length };
    },
  };
}
