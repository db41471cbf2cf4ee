/**
 * Keeps the role of this gateway, primary or follower, and handles what changes it: `promote`, a restored file, a
 * message of another gateway.
 */

import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorText } from '../../../../shared/text/error-text.ts';
import { AdaptiveTimeout } from '../../../../shared/timing/adaptive-timeout.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import type { ChangeFeed } from './change-feed.ts';
import { readEpoch } from './epoch-statement.ts';
import { epochAnswerSchema, type FollowAnswer } from './messages.ts';
import { type GatewayRole, readRole, writeRole } from './role-file.ts';
import type { SignedGatewayClient } from './signed-gateway-client.ts';
import type { GatewayIdentity } from './signed-request.ts';

/** A running gateway checks at this interval whether `promote` wrote the file. */
const POLL_MS = 1_000;
const REPORT_MS = 5_000;
const REPORT_TIMEOUT = { leastMs: 3_000, mostMs: 30_000 };
const REPORTED_MAX = 16;

interface RoleKeeperOptions {
  data: string;
  identity: GatewayIdentity;
  feed: ChangeFeed;
  link: SignedGatewayClient;
  /** For a follower: URLs of the other followers of its primary. */
  others(): readonly string[];
  /** URLs of gateways that may know a newer primary. */
  silentGateways(): readonly string[];
  /**
   * Called when another gateway becomes the primary; `by`: the name of its key. What was copied or recorded here
   * belongs to a former primary.
   */
  onDemoted(by: string): void;
  /** Called when the role or the primary has changed. */
  changed(): void;
  log(line: string): void;
}

export class RoleKeeper {
  readonly #options: RoleKeeperOptions;
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #answers = new AdaptiveTimeout(REPORT_TIMEOUT);
  #role: GatewayRole;
  /** The statement for this process's key. `issuer rotate` writes another one for the next start. */
  #statement: string | undefined;

  /** @throws CommandError if the file is damaged */
  constructor(options: RoleKeeperOptions) {
    this.#options = options;
    this.#role = readRole(options.data);
    this.#statement = this.#role.statement;
  }

  get role(): GatewayRole {
    const { statement: _, ...role } = this.#role;
    return this.#statement === undefined ? role : { ...role, statement: this.#statement };
  }

  start(): void {
    const poll = setInterval(() => this.#poll(), POLL_MS);
    const report = setInterval(() => neverRejects(this.#report().then(() => this.#askSilentGateways())), REPORT_MS);
    this.#timers.push(poll.unref(), report.unref());
  }

  close(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }

  /**
   * True if the answer is from the primary: the gateway that the statement with the highest epoch names, or in epoch 0
   * the gateway of --follow.
   */
  acceptAnswer({ epoch, statement }: FollowAnswer, by: string): boolean {
    if (epoch < this.#role.epoch) return false;
    if (epoch === 0) return true;
    const signed = statement === undefined ? undefined : readEpoch(statement, this.#options.identity.certificate.root);
    if (signed === undefined || signed.epoch !== epoch || signed.first !== by) return false;
    if (epoch > this.#role.epoch)
      this.#setRole({ ...this.#role, epoch, ...(statement === undefined ? {} : { statement }) });
    return true;
  }

  /** Handles a statement that another gateway was promoted. @returns the epoch that is now valid here */
  acceptStatement(text: string): number {
    const { identity, log, data, feed } = this.#options;
    const statement = text === '' ? undefined : readEpoch(text, identity.certificate.root);
    if (statement === undefined || statement.epoch <= this.#role.epoch) return this.#role.epoch;
    if (statement.first === identity.certificate.keyName) return this.#role.epoch;
    if (this.#role.role === 'first') {
      const lines = changesSince(feed, statement.feed === feed.id ? statement.since : 0);
      const file = join(data, `split-${statement.epoch}.jsonl`);
      if (lines.length > 0) appendFileSync(file, `${lines.join('\n')}\n`, { mode: 0o600 });
      const listed = lines.length === 0 ? 'none' : `${lines.length}, listed in ${file}; they are not merged`;
      log(`${statement.url} is the primary now. Changes made at this gateway since the split: ${listed}`);
    }
    this.#options.onDemoted(statement.first);
    this.#setRole({ role: 'follower', epoch: statement.epoch, statement: text, follow: statement.url });
    this.#options.changed();
    return statement.epoch;
  }

  #setRole(role: GatewayRole): void {
    writeRole(this.#options.data, role);
    if (role.epoch !== this.#role.epoch) this.#statement = role.statement;
    this.#role = role;
  }

  #poll(): void {
    const { data, log, changed } = this.#options;
    let role: GatewayRole;
    try {
      role = readRole(data);
    } catch (error) {
      log(errorText(error));
      return;
    }
    if (JSON.stringify(role) === JSON.stringify(this.#role)) return;
    if (role.role === 'first' && this.#role.role === 'first' && role.epoch === this.#role.epoch) {
      this.#role = role;
      return;
    }
    const isAnother = role.role !== this.#role.role || role.follow !== this.#role.follow;
    // `tell` already contains the former primary. The other followers are added, because they must be informed too.
    if (role.role === 'first' && this.#role.role === 'follower')
      role = { ...role, tell: [...new Set([...(role.tell ?? []), ...this.#options.others()])].slice(0, REPORTED_MAX) };
    this.#setRole(role);
    const first = role.role === 'first';
    log(
      first ? `this gateway is the primary now, epoch ${role.epoch}` : `this gateway is a follower of ${role.follow}`,
    );
    if (isAnother) changed();
  }

  /**
   * Asks gateways without contact for a newer epoch. A primary that was restored from an old backup learns this way
   * that it is no longer the primary. A follower learns which gateway was promoted, if that gateway did not know it
   * when their primary died.
   */
  async #askSilentGateways(): Promise<void> {
    const { link, silentGateways } = this.#options;
    for (const url of silentGateways().slice(0, REPORTED_MAX)) {
      try {
        const asked = { statement: this.#statement ?? '' };
        const { answer } = await link.ask(new URL(url), '/gateway/epoch', asked, epochAnswerSchema, this.#answers);
        if (answer.statement !== undefined) this.acceptStatement(answer.statement);
      } catch {
        // Skipped: the gateway cannot be reached, or has an older version.
      }
    }
  }

  /** Informs the former primaries, until each has the statement. */
  async #report(): Promise<void> {
    const { tell: report = [], epoch } = this.#role;
    const statement = this.#statement;
    if (statement === undefined || this.#role.role !== 'first') return;
    for (const url of report) {
      try {
        const asked = this.#options.link.ask(
          new URL(url),
          '/gateway/epoch',
          { statement },
          epochAnswerSchema,
          this.#answers,
        );
        if ((await asked).answer.epoch < epoch) continue;
        this.#setRole({ ...this.#role, tell: (this.#role.tell ?? []).filter((one) => one !== url) });
      } catch {
        // Tried again later: the gateway cannot be reached yet.
      }
    }
  }
}

/** Returns lines of the audit log: what was changed, and by which key, without secrets. */
function changesSince(feed: ChangeFeed, seq: number): string[] {
  const lines: string[] = [];
  for (let from = seq; ; ) {
    const page = feed.since(from);
    for (const { table, row } of page.rows) if (table === 'audit_log' && row !== null) lines.push(JSON.stringify(row));
    if (!page.more) return lines;
    from = page.seq;
  }
}
