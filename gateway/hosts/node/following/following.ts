/** One gateway among those of its institution: the first, or one that follows it. What it gives to the gateway's rooms depends on that. */
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import manifest from '../../../../package.json' with { type: 'json' };
import type { LimitsObject } from '../../../accounts/limits/limits-object.ts';
import type { ObjectNamespace, ObjectStub } from '../../../object-context.ts';
import type { RegistryObject } from '../../../registry/object.ts';
import { REGISTRY_NAME } from '../../../registry-name.ts';
import type { UsageObject } from '../../../usage/object.ts';
import { Database } from '../sqlite.ts';
import { ChangeFeed } from './change-feed.ts';
import { AccountsCopy } from './copy.ts';
import { readEpoch } from './epoch.ts';
import { type CopyState, Follower } from './follower.ts';
import { HandOver } from './hand-over.ts';
import { Leader } from './leader.ts';
import { GatewayLink } from './link.ts';
import { type Follower as KnownFollower, MemberTable } from './member-table.ts';
import { epochTakenSchema, type Followed, limitAnswerSchema } from './messages.ts';
import { FOLLOWING_FILE, type Role, readRole, writeRole } from './role.ts';
import { type AskedMethod, limitsOfFirst, limitsOfFollower } from './shared-limits.ts';
import type { Part } from './shares.ts';
import type { GatewayIdentity } from './signed.ts';

/** `promote` writes the role's file; a running gateway looks at it so often. */
const LOOK_MS = 1_000;
const TELL_MS = 5_000;
const LIMIT_ANSWER_MS = 1_500;
const FIRST_COPY_MS = 30_000;

interface FollowingOptions {
  data: string;
  accounts: Database;
  identity: GatewayIdentity;
  /** Where this gateway answers; a follower must say so. */
  url: string | undefined;
  maxStaleMs: number;
  log(line: string): void;
}

/** The gateway's objects, as they are without others. */
interface Own {
  limits: ObjectNamespace<LimitsObject>;
  usage: ObjectNamespace<UsageObject>;
  registry: ObjectNamespace<RegistryObject>;
}

export class Following {
  readonly #options: FollowingOptions;
  readonly #database: Database;
  readonly #members: MemberTable;
  readonly #handOver: HandOver;
  readonly #feed: ChangeFeed;
  readonly #link: GatewayLink;
  readonly #timers: NodeJS.Timeout[] = [];
  #own: Own | undefined;
  #role: Role;
  #follower: Follower | undefined;
  leader: Leader | undefined;

  constructor(options: FollowingOptions) {
    this.#options = options;
    this.#role = readRole(options.data);
    this.#database = new Database(join(options.data, FOLLOWING_FILE));
    this.#members = new MemberTable(this.#database, () => performance.now());
    this.#handOver = new HandOver(this.#database);
    this.#database.script('CREATE TABLE IF NOT EXISTS copy_state (id INTEGER PRIMARY KEY, state TEXT NOT NULL)');
    this.#feed = new ChangeFeed(options.accounts);
    this.#link = new GatewayLink(options.identity);
  }

  /** Begins to follow, or to answer those that do. */
  start(own: Own): void {
    this.#own = own;
    const { identity, log } = this.#options;
    this.leader = new Leader({
      identity,
      role: () => this.#role,
      feed: this.#feed,
      members: this.#members,
      limits: own.limits,
      usage: own.usage,
      hear: (statement) => this.#hear(statement),
      log,
    });
    this.#act();
    const look = setInterval(() => this.#look(), LOOK_MS);
    const tell = setInterval(() => void this.#tell(), TELL_MS);
    this.#timers.push(look.unref(), tell.unref());
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#follower?.stop();
    await this.#link.close();
    this.#database.close();
  }

  /** Where changes are made; undefined: here. */
  get first(): string | undefined {
    return this.#role.role === 'follower' ? this.#role.follow : undefined;
  }

  /** Why requests are refused; undefined: they are not. */
  get refusal(): string | undefined {
    if (this.#role.role === 'first') return undefined;
    const syncedAt = this.#follower?.syncedAt ?? 0;
    if (Date.now() - syncedAt <= this.#options.maxStaleMs) return undefined;
    return syncedAt === 0
      ? `This gateway has not yet heard from ${this.first}.`
      : `This gateway has not heard from ${this.first} since ${new Date(syncedAt).toISOString()}: what it knows is too old.`;
  }

  /** Other gateways of the institution that agents may serve. */
  gateways(): string[] {
    const known = this.#role.role === 'first' ? this.#members.list() : (this.#follower?.others ?? []);
    const others = known.filter(({ key }) => key !== this.#options.identity.certificate.keyName).map(({ url }) => url);
    return this.first === undefined ? others : [this.first, ...others];
  }

  status(): object {
    const { role, epoch } = this.#role;
    return {
      role,
      epoch,
      ...(this.first === undefined
        ? { followers: this.#members.list().map(followerView) }
        : {
            first: this.first,
            connected: this.#follower?.connected ?? false,
            synced_at: this.#follower?.syncedAt ? new Date(this.#follower.syncedAt).toISOString() : null,
            waiting_records: this.#handOver.waiting,
            ...(this.#follower?.lastError !== undefined && !this.#follower.connected
              ? { error: this.#follower.lastError }
              : {}),
          }),
    };
  }

  remove(key: string): boolean {
    return this.#members.remove(key);
  }

  /** Resolves when a new follower has a whole copy. @throws Error where none came in time */
  async firstCopy(): Promise<void> {
    const until = Date.now() + FIRST_COPY_MS;
    while (this.#role.role === 'follower' && (this.#follower?.syncedAt ?? 0) === 0) {
      if (Date.now() > until)
        throw new Error(`no copy of the accounts came from ${this.first}: ${this.#follower?.lastError ?? 'no answer'}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** LIMITS as the gateway's rooms ask for it. */
  limits(own: ObjectNamespace<LimitsObject>): ObjectNamespace<LimitsObject> {
    const first = limitsOfFirst(own, () => this.#partOfFirst());
    const follower = limitsOfFollower(own, {
      ask: (subject, method, args) => this.#askFirst(subject, method, args),
      alone: () => this.#follower?.alone() ?? Promise.resolve(true),
      part: () => ({ of: 'follower', followers: Math.max(1, this.#follower?.others.length ?? 1) }),
      handOver: (subject, source, items) => this.#handOver.add('settle', subject, { source, items }),
    });
    return { getByName: (name) => (this.#role.role === 'first' ? first : follower).getByName(name) };
  }

  /** USAGE: what a follower counted is the first's to know, too. */
  usage(own: ObjectNamespace<UsageObject>): ObjectNamespace<UsageObject> {
    return {
      getByName: (name) => {
        const stub = own.getByName(name);
        if (this.#role.role === 'first') return stub;
        const add: ObjectStub<UsageObject>['add'] = async (rows) => {
          await stub.add(rows);
          this.#handOver.add('usage', name, rows);
        };
        return Object.assign(Object.create(stub) as ObjectStub<UsageObject>, { add });
      },
    };
  }

  #partOfFirst(): Part | undefined {
    const followers = this.#members.list();
    const away = followers.filter(({ connected }) => !connected).length;
    return away === 0 ? undefined : { of: 'first', followersAway: away, followers: followers.length };
  }

  async #askFirst(subject: string, method: AskedMethod, args: unknown[]): Promise<unknown> {
    const { first } = this;
    if (first === undefined) throw new Error('this gateway is the first');
    const call = { subject, method, args };
    const { answer } = await this.#link.ask(
      new URL(first),
      '/gateway/limits',
      call,
      limitAnswerSchema,
      LIMIT_ANSWER_MS,
    );
    return answer.result;
  }

  #act(): void {
    this.#follower?.stop();
    this.#follower = undefined;
    const { role, follow } = this.#role;
    const { url, log } = this.#options;
    if (role === 'first' || follow === undefined) return;
    this.#follower = new Follower({
      first: new URL(follow),
      url: url ?? '',
      version: manifest.version,
      link: this.#link,
      copy: new AccountsCopy(this.#options.accounts),
      handOver: this.#handOver,
      state: this.#copyState(),
      now: () => performance.now(),
      save: (state) =>
        this.#database.rows('INSERT OR REPLACE INTO copy_state (id, state) VALUES (1, ?)', [JSON.stringify(state)]),
      changed: (revoked) => this.#changed(revoked),
      believe: (answer, by) => this.#believe(answer, by),
      log,
    });
  }

  #copyState(): CopyState {
    const [row] = this.#database.rows('SELECT state FROM copy_state WHERE id = 1', []);
    return row === undefined ? { cursor: null, syncedAt: 0 } : (JSON.parse(String(row.state)) as CopyState);
  }

  /** Every isolate hears of it, and what a revoked token let in here ends. */
  async #changed(revoked: readonly string[]): Promise<void> {
    const registry = this.#own?.registry.getByName(REGISTRY_NAME);
    await registry?.reloadSettings();
    for (const token of revoked) await registry?.revokeToken(token, true);
  }

  /** The first is whom the statement with the highest epoch names; in epoch 0, whom the operator named by --follow. */
  #believe({ epoch, statement }: Followed, by: string): boolean {
    if (epoch < this.#role.epoch) return false;
    if (epoch === 0) return true;
    const said = statement === undefined ? undefined : readEpoch(statement, this.#options.identity.certificate.root);
    if (said === undefined || said.epoch !== epoch || said.first !== by) return false;
    if (epoch > this.#role.epoch)
      this.#become({ ...this.#role, epoch, ...(statement === undefined ? {} : { statement }) });
    return true;
  }

  /** Another gateway was promoted, by the root's word. */
  #hear(text: string): number {
    const { identity, log, data } = this.#options;
    const statement = text === '' ? undefined : readEpoch(text, identity.certificate.root);
    if (statement === undefined || statement.epoch <= this.#role.epoch) return this.#role.epoch;
    if (statement.first === identity.certificate.keyName) return this.#role.epoch;
    if (this.#role.role === 'first') {
      const file = join(data, `split-${statement.epoch}.jsonl`);
      const lines = this.#changesSince(statement.feed === this.#feed.id ? statement.since : 0);
      if (lines.length > 0) appendFileSync(file, `${lines.join('\n')}\n`, { mode: 0o600 });
      log(
        `${statement.url} is the first gateway now. Changes made here since the split: ${lines.length}${lines.length > 0 ? `, listed in ${file}; they are not merged` : ''}`,
      );
    }
    this.#database.rows('DELETE FROM copy_state', []);
    this.#become({ role: 'follower', epoch: statement.epoch, statement: text, follow: statement.url });
    this.#act();
    return statement.epoch;
  }

  /** The audit log's lines: what was changed, by whom, without secrets. */
  #changesSince(seq: number): string[] {
    const lines: string[] = [];
    for (let from = seq; ; ) {
      const page = this.#feed.since(from);
      for (const { table, row } of page.rows)
        if (table === 'audit_log' && row !== null) lines.push(JSON.stringify(row));
      if (!page.more) return lines;
      from = page.seq;
    }
  }

  #become(role: Role): void {
    writeRole(this.#options.data, role);
    this.#role = role;
  }

  /** `promote` was called, or a file was put back. */
  #look(): void {
    let role: Role;
    try {
      role = readRole(this.#options.data);
    } catch (error) {
      this.#options.log(error instanceof Error ? error.message : String(error));
      return;
    }
    if (JSON.stringify(role) === JSON.stringify(this.#role)) return;
    const changes = role.role !== this.#role.role || role.follow !== this.#role.follow;
    if (role.role === 'first' && this.#role.role === 'follower') role = { ...role, tell: this.#toBeTold(role.tell) };
    this.#become(role);
    this.#options.log(
      role.role === 'first'
        ? `this gateway is the first now, epoch ${role.epoch}`
        : `this gateway follows ${role.follow}`,
    );
    if (changes) this.#act();
  }

  /** The former first, and those that follow it as this gateway did. */
  #toBeTold(tell: readonly string[] = []): string[] {
    const own = this.#options.identity.certificate.keyName;
    const others = (this.#follower?.others ?? []).filter(({ key }) => key !== own).map(({ url }) => url);
    return [...new Set([...tell, ...others])].slice(0, 16);
  }

  /** Former firsts hear of the promotion, until each has. */
  async #tell(): Promise<void> {
    const { statement, tell = [], epoch } = this.#role;
    if (statement === undefined || this.#role.role !== 'first') return;
    for (const url of tell) {
      try {
        const { answer } = await this.#link.ask(new URL(url), '/gateway/epoch', { statement }, epochTakenSchema, 3_000);
        if (answer.epoch >= epoch)
          this.#become({ ...this.#role, tell: (this.#role.tell ?? []).filter((one) => one !== url) });
      } catch {
        // Away still.
      }
    }
  }
}

function followerView({ key, url, version, seenAt, connected, waiting }: KnownFollower) {
  return { key, url, version, seen_at: new Date(seenAt).toISOString(), connected, waiting_records: waiting };
}
