/**
 * Replication of this gateway as the primary or a follower of its institution. It provides the objects (LIMITS, USAGE)
 * that the rest of the gateway uses in that role.
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import manifest from '../../../../package.json' with { type: 'json' };
import { AdaptiveTimeout } from '../../../../shared/timing/adaptive-timeout.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import type { LimitsObject } from '../../../accounts/limits/limits-object.ts';
import type { ObjectNamespace, ObjectStub } from '../../../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../../../platform/registry-object-name.ts';
import { waitClock } from '../../../platform/wait-clock.ts';
import type { RegistryObject } from '../../../registry/registry-object.ts';
import type { UsageObject } from '../../../usage/hour/usage-hour-object.ts';
import type { Database } from '../sqlite.ts';
import { AccountsReplica } from './accounts-replica.ts';
import { ChangeFeed } from './change-feed.ts';
import { FollowerTable, type FollowerEntry as KnownFollower } from './follower-table.ts';
import { type LimitCall, limitAnswerSchema } from './messages.ts';
import { MonthCounts } from './month-counts.ts';
import { PastRecords } from './past-usage-records.ts';
import { PrimaryServer } from './primary-server.ts';
import type { QuotaShare } from './quota-shares.ts';
import { openReplicationFile } from './replication-file.ts';
import { type ReplicationState, Replicator } from './replicator.ts';
import type { GatewayRole } from './role-file.ts';
import { RoleKeeper } from './role-keeper.ts';
import { followerLimits, primaryLimits } from './shared-limits.ts';
import { SignedGatewayClient } from './signed-gateway-client.ts';
import type { GatewayIdentity } from './signed-request.ts';
import { RecordQueue } from './usage-record-queue.ts';

/**
 * Bounds on the wait for a limits call to the primary, during which a request waits. The wait is longer if earlier
 * calls took longer.
 */
const LIMIT_ANSWER = { leastMs: 1_500, mostMs: 15_000 };
/** Maximum wait for the next page of a new follower's first copy. */
const FIRST_COPY_MS = 30_000;

interface ReplicationOptions {
  data: string;
  /** Directory of the hours' files. */
  hours: string;
  accounts: Database;
  identity: GatewayIdentity;
  /** URL of this gateway; a follower needs one. */
  url: string | undefined;
  maxStaleMs: number;
  log(line: string): void;
}

/** The gateway's own objects. A gateway without other gateways uses them directly. */
interface OwnObjects {
  limits: ObjectNamespace<LimitsObject>;
  usage: ObjectNamespace<UsageObject>;
  registry: ObjectNamespace<RegistryObject>;
}

export class Replication {
  readonly #options: ReplicationOptions;
  readonly #database: Database;
  readonly #members: FollowerTable;
  readonly #records: RecordQueue;
  readonly #budgets: MonthCounts;
  /** Resolves when the monthly usage that this gateway recorded as the primary is queued for the new primary. */
  #budgetsTold: Promise<void> = Promise.resolve();
  readonly #feed: ChangeFeed;
  readonly #link: SignedGatewayClient;
  readonly #limitAnswers = new AdaptiveTimeout(LIMIT_ANSWER);
  readonly #keeper: RoleKeeper;
  #own: OwnObjects | undefined;
  #past: PastRecords | undefined;
  #follower: Replicator | undefined;
  primaryServer: PrimaryServer | undefined;

  constructor(options: ReplicationOptions) {
    this.#options = options;
    this.#database = openReplicationFile(options.data);
    this.#members = new FollowerTable(this.#database, () => performance.now());
    this.#records = new RecordQueue(this.#database);
    this.#budgets = new MonthCounts(this.#database, options.identity.certificate.keyName);
    // The file is closed until something is written, because a file that was opened while the disk was full stays
    // exclusive to this process.
    if (this.#database.path !== ':memory:') this.#database.close();
    this.#feed = new ChangeFeed(options.accounts);
    this.#link = new SignedGatewayClient(options.identity);
    const { data, identity, log } = options;
    this.#keeper = new RoleKeeper({
      data,
      identity,
      feed: this.#feed,
      link: this.#link,
      others: () => this.#others(),
      silentGateways: () => this.#silentGateways(),
      onDemoted: (by) => {
        // Only a gateway that was the primary has records to hand over. A follower sent its records to the former
        // primary, which hands them over.
        if (this.#role.role === 'first') {
          this.#past?.note(by);
          this.#budgets.depose();
        }
        this.#database.rows('DELETE FROM copy_state', []);
      },
      changed: () => this.#act(),
      log,
    });
  }

  get #role(): GatewayRole {
    return this.#keeper.role;
  }

  /** Starts to follow the primary, or to answer followers. */
  start(own: OwnObjects): void {
    this.#own = own;
    const { identity, log } = this.#options;
    this.primaryServer = new PrimaryServer({
      identity,
      role: () => this.#role,
      feed: this.#feed,
      members: this.#members,
      limits: own.limits,
      budgets: this.#budgets,
      usage: own.usage,
      acceptStatement: (statement) => this.#keeper.acceptStatement(statement),
      log,
    });
    this.#past = new PastRecords({
      database: this.#database,
      directory: this.#options.hours,
      usage: own.usage,
      records: this.#records,
      log,
    });
    this.#act();
    this.#keeper.start();
  }

  async close(): Promise<void> {
    this.#keeper.close();
    this.#past?.stop();
    this.#follower?.stop();
    await this.#link.close();
    this.#database.close();
  }

  /** URL of the primary; undefined: this gateway is the primary. */
  get primary(): string | undefined {
    return this.#role.role === 'follower' ? this.#role.follow : undefined;
  }

  /** Reason to refuse requests; undefined: requests are answered. */
  get refusal(): string | undefined {
    if (this.#role.role === 'first') return undefined;
    const syncedAt = this.#follower?.syncedAt ?? 0;
    if (this.#follower !== undefined && this.#follower.staleMs <= this.#options.maxStaleMs) return undefined;
    return syncedAt === 0
      ? `This gateway has not received any data from ${this.primary} yet.`
      : `This gateway has received no data from ${this.primary} since ${new Date(syncedAt).toISOString()}: its copy is too old.`;
  }

  /** URLs of other gateways of the institution to which agents may connect. */
  gateways(): string[] {
    return this.primary === undefined ? this.#others() : [this.primary, ...this.#others()];
  }

  /** URLs of followers other than this gateway. */
  #others(): string[] {
    const known = this.#role.role === 'first' ? this.#members.list() : (this.#follower?.others ?? []);
    return known.filter(({ key }) => key !== this.#options.identity.certificate.keyName).map(({ url }) => url);
  }

  /**
   * URLs of gateways that may know a newer primary. For a primary: its followers without contact; for a follower
   * without contact: the other followers.
   */
  #silentGateways(): string[] {
    if (this.#role.role === 'first')
      return this.#members.list().flatMap(({ url, connected }) => (connected ? [] : url));
    return this.#follower?.connected ? [] : this.#others();
  }

  status(): object {
    const { role, epoch } = this.#role;
    return {
      role,
      epoch,
      ...(this.primary === undefined
        ? { followers: this.#members.list().map(followerView) }
        : {
            first: this.primary,
            connected: this.#follower?.connected ?? false,
            synced_at: this.#follower?.syncedAt ? new Date(this.#follower.syncedAt).toISOString() : null,
            waiting_records: this.#records.waiting,
            ...(this.#follower?.lastError === undefined ? {} : { error: this.#follower.lastError }),
          }),
    };
  }

  remove(key: string): boolean {
    return this.#members.remove(key);
  }

  /** Resolves when a new follower has a complete copy. @throws Error if no page arrived for FIRST_COPY_MS */
  async firstCopy(): Promise<void> {
    let until = waitClock.now() + FIRST_COPY_MS;
    let place = this.#follower?.cursor;
    while (this.#role.role === 'follower' && (this.#follower?.syncedAt ?? 0) === 0) {
      if (this.#follower?.cursor !== place) until = waitClock.now() + FIRST_COPY_MS;
      place = this.#follower?.cursor;
      if (waitClock.now() > until)
        throw new Error(`cannot copy the accounts from ${this.primary}: ${this.#follower?.lastError ?? 'no answer'}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Returns the LIMITS that the rest of the gateway uses. */
  limits(own: ObjectNamespace<LimitsObject>): ObjectNamespace<LimitsObject> {
    const first = primaryLimits(
      own,
      () => this.#partOfFirst(),
      (subject) => this.#budgets.note(subject),
    );
    const follower = followerLimits(own, {
      ask: (subject, method, args, once) => this.#askPrimary({ subject, method, args, once }),
      nonce: () => randomUUID(),
      pause: (ms) => delay(ms),
      now: () => performance.now(),
      alone: () => this.#follower?.lostPrimary() ?? Promise.resolve(true),
      part: () => ({ of: 'follower', followers: Math.max(1, this.#follower?.others.length ?? 1) }),
      settled: () => this.#budgetsTold,
      note: (subject) => this.#budgets.note(subject),
      handOver: (subject, source, items) => this.#records.add('settle', subject, { source, items }),
    });
    return { getByName: (name) => (this.#role.role === 'first' ? first : follower).getByName(name) };
  }

  /** Returns the USAGE that the rest of the gateway uses: a follower also queues records for the primary. */
  usage(own: ObjectNamespace<UsageObject>): ObjectNamespace<UsageObject> {
    return {
      getByName: (name) => {
        const stub = own.getByName(name);
        if (this.#role.role === 'first') return stub;
        const add: ObjectStub<UsageObject>['add'] = async (rows) => {
          await stub.add(rows);
          this.#records.add('usage', name, rows);
        };
        return Object.assign(Object.create(stub) as ObjectStub<UsageObject>, { add });
      },
    };
  }

  #partOfFirst(): QuotaShare | undefined {
    const followers = this.#members.list();
    const away = followers.filter(({ connected }) => !connected).length;
    return away === 0 ? undefined : { of: 'first', followersAway: away, followers: followers.length };
  }

  async #askPrimary(call: LimitCall): Promise<unknown> {
    const { primary } = this;
    if (primary === undefined) throw new Error('this gateway is the primary');
    const { answer } = await this.#link.ask(
      new URL(primary),
      '/gateway/limits',
      call,
      limitAnswerSchema,
      this.#limitAnswers,
    );
    return answer.result;
  }

  #act(): void {
    this.#follower?.stop();
    this.#follower = undefined;
    const { role, follow } = this.#role;
    const { url, log } = this.#options;
    if (role === 'first' || follow === undefined) return;
    neverRejects(this.#past?.run());
    if (this.#own !== undefined) this.#budgetsTold = this.#budgets.handOver(this.#own.limits, this.#records, log);
    this.#follower = new Replicator({
      primary: new URL(follow),
      url: url ?? '',
      version: manifest.version,
      link: this.#link,
      copy: new AccountsReplica(this.#options.accounts),
      records: this.#records,
      origin: this.#budgets.own,
      storeCounts: async (counts) => {
        if (this.#own !== undefined) await this.#budgets.store(counts, this.#own.limits);
      },
      state: this.#copyState(),
      now: () => performance.now(),
      save: (state) =>
        this.#database.rows('INSERT OR REPLACE INTO copy_state (id, state) VALUES (1, ?)', [JSON.stringify(state)]),
      changed: (revoked) => this.#changed(revoked),
      acceptStatement: (statement) => void this.#keeper.acceptStatement(statement),
      acceptAnswer: (answer, by) => this.#keeper.acceptAnswer(answer, by),
      log,
    });
  }

  #copyState(): ReplicationState {
    const [row] = this.#database.rows('SELECT state FROM copy_state WHERE id = 1', []);
    return row === undefined ? { cursor: null, syncedAt: 0 } : (JSON.parse(String(row.state)) as ReplicationState);
  }

  /**
   * Notifies every isolate of changed accounts, and ends the sessions that a revoked token admitted at this gateway.
   */
  async #changed(revoked: readonly string[]): Promise<void> {
    const registry = this.#own?.registry.getByName(REGISTRY_OBJECT_NAME);
    await registry?.reloadSettings();
    for (const token of revoked) await registry?.revokeToken(token, true);
  }
}

function followerView({ key, url, version, seenAt, connected, waiting }: KnownFollower) {
  return { key, url, version, seen_at: new Date(seenAt).toISOString(), connected, waiting_records: waiting };
}
