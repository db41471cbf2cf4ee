/**
 * Asks identity providers at intervals whether they still know the people that logged in, by refresh tokens (RFC 6749
 * §6). The keys of a person that left then stop working without SCIM. A single object.
 */
import { and, eq } from 'drizzle-orm';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import type { Env } from '../../env.ts';
import { GatewayObject } from '../../platform/gateway-object.ts';
import { notifyRegistry } from '../../platform/notify-registry.ts';
import type { ObjectContext } from '../../platform/object-context.ts';
import { auditLog, sessions, users } from '../account-tables.ts';
import { database, queryOrUnavailable } from '../database.ts';
import { decryptText, encryptText } from '../encrypt-text.ts';
import { readGatewaySettings } from '../gateway-settings.ts';
import { installationSecret } from '../installation-secret.ts';
import { clientSecret } from './client-secret.ts';
import { refreshLogin, verifyToken } from './oidc.ts';
import type { OidcIssuer } from './oidc-config.ts';
import { findOrCreateUser } from './oidc-user.ts';

/** Name of the only object. */
export const CONFIRMATION_NAME = 'confirmation';
const EVERY_MS = 10 * 60_000;
const HOUR_MS = 60 * 60_000;
/** Maximum people of one provider in one alarm: it gets at most this many requests in ten minutes. */
const AT_ONCE = 200;
/** Maximum duration of one alarm. Cloudflare ends it after 15 minutes. */
const ALARM_MS = 5 * 60_000;
/** After this number of consecutive requests that decide nothing, the provider gets no more in this alarm. */
const UNDECIDED_MAX = 3;
/** Maximum stored refresh tokens; the oldest are dropped. Each has at most a few KiB. */
const TOKENS_MAX = 100_000;
/** If a provider did not answer for a person, it is asked again about this person after this time. */
const RETRY_MS = HOUR_MS;

type StoredLogin = { user: string; sealed: string };

export class ConfirmationObject extends GatewayObject {
  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec(`
      CREATE TABLE IF NOT EXISTS logins (user TEXT PRIMARY KEY, issuer TEXT NOT NULL, sealed TEXT NOT NULL,
        confirmedAt INTEGER NOT NULL, nextAt INTEGER NOT NULL);
      CREATE INDEX IF NOT EXISTS logins_next ON logins (nextAt)`);
  }

  /** Keeps the refresh token of a login; a later login replaces it. */
  async keep(user: string, { issuer, confirm_hours }: OidcIssuer, token: string): Promise<void> {
    if (confirm_hours === null) return;
    const sealed = await encryptText(await installationSecret(this.env), 'refresh token', token);
    const { sql } = this.ctx.storage;
    const now = this.#now;
    const row = 'INSERT OR REPLACE INTO logins VALUES (?, ?, ?, ?, ?)';
    sql.exec(row, user, issuer, sealed, now, now + confirm_hours * HOUR_MS);
    const oldest = 'SELECT user FROM logins ORDER BY confirmedAt DESC LIMIT -1 OFFSET ?';
    sql.exec(`DELETE FROM logins WHERE user IN (${oldest})`, TOKENS_MAX);
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(this.#now + EVERY_MS);
  }

  /** Deletes the refresh token of a person. */
  forget(user: string): void {
    this.ctx.storage.sql.exec('DELETE FROM logins WHERE user = ?', user);
  }

  async alarm(): Promise<void> {
    const { sql } = this.ctx.storage;
    const [left] = sql.exec<{ n: number }>('SELECT count(*) AS n FROM logins').toArray();
    if ((left?.n ?? 0) > 0) await this.ctx.storage.setAlarm(this.#now + EVERY_MS);
    const isDue = 'SELECT 1 FROM logins WHERE nextAt <= ? LIMIT 1';
    if (sql.exec(isDue, this.#now).toArray().length === 0) return;
    const { oidc } = await readGatewaySettings(this.env, this.#now);
    const issuers = oidc.filter(({ confirm_hours }) => confirm_hours !== null);
    const known = issuers.map(() => '?').join(', ');
    const others = `DELETE FROM logins WHERE nextAt <= ? AND issuer NOT IN (${known})`;
    sql.exec(others, this.#now, ...issuers.map(({ issuer }) => issuer));
    await Promise.all(issuers.map((config) => this.#confirmAll(config)));
  }

  /** Asks one provider about people, one after another: a provider that is slow gets no flood, and delays no other. */
  async #confirmAll(config: OidcIssuer): Promise<void> {
    const { sql } = this.ctx.storage;
    const { issuer } = config;
    const start = this.#now;
    const query = 'SELECT user, sealed FROM logins WHERE issuer = ? AND nextAt <= ? ORDER BY nextAt LIMIT ?';
    let undecided = 0;
    for (const login of sql.exec<StoredLogin>(query, issuer, start, AT_ONCE).toArray()) {
      if (undecided >= UNDECIDED_MAX || this.#now - start > ALARM_MS) return;
      undecided = (await this.#confirm(login, config)) ? 0 : undecided + 1;
    }
  }

  get #now(): number {
    return this.ctx.clock.now();
  }

  /** Asks about one person. Returns false if the provider did not decide. */
  async #confirm({ user, sealed }: StoredLogin, config: OidcIssuer): Promise<boolean> {
    const { sql } = this.ctx.storage;
    const token = await decryptText(await installationSecret(this.env), 'refresh token', sealed);
    // The installation's secret is another one, for example after a restore: nothing is known about the person.
    if (token === undefined) {
      this.forget(user);
      return true;
    }
    try {
      const answer = await refreshLogin(config, token, clientSecret(this.env, config), this.#now);
      // The person may have logged in meanwhile.
      if (!this.#isCurrent(user, sealed)) return true;
      if (answer === 'refused') await this.#refuse(user);
      else {
        await this.keep(user, config, answer.refresh_token ?? token);
        await this.#update(user, config, answer.id_token);
      }
      return true;
    } catch (error) {
      // The provider did not decide. That it cannot be reached says nothing about the person.
      sql.exec('UPDATE logins SET nextAt = ? WHERE user = ? AND nextAt <= ?', this.#now + RETRY_MS, user, this.#now);
      console.error(`${config.issuer} did not say whether ${user} still belongs to it: ${errorText(error)}`);
      return false;
    }
  }

  #isCurrent(user: string, sealed: string): boolean {
    const query = 'SELECT user FROM logins WHERE user = ? AND sealed = ?';
    return this.ctx.storage.sql.exec(query, user, sealed).toArray().length > 0;
  }

  /** Stores that the provider knows the person, and the rights in its claims. An ID token is optional here. */
  async #update(user: string, config: OidcIssuer, idToken: string | undefined): Promise<void> {
    const now = this.#now;
    if (idToken !== undefined) {
      const claims = await verifyToken(config, idToken, config.client_id, now);
      const [row] = await queryOrUnavailable(database(this.env).select().from(users).where(eq(users.id, user)));
      // OpenID Connect Core §12.2: the token must be about the same person.
      if (row === undefined || row.subject !== claims.sub || row.issuer !== config.issuer) return this.forget(user);
      // If the claims no longer admit the person, the rights are lost already, and each login gets this error.
      await findOrCreateUser(this.env, config, claims, now).catch((error: unknown) => {
        if (!(error instanceof ApiError) || error.code !== 'permission_denied') throw error;
      });
    }
    await queryOrUnavailable(database(this.env).update(users).set({ claimsAt: now }).where(eq(users.id, user)));
  }

  /** Suspends the keys of a person and ends the browser sessions, until the person logs in again. */
  async #refuse(user: string): Promise<void> {
    const now = this.#now;
    const db = database(this.env);
    const line = { at: now, actor: 'login', action: 'user.update', object: user };
    // Negative: the provider refused at this time. Claims from before it cannot confirm the person.
    const mine = and(eq(users.id, user));
    await queryOrUnavailable(
      db.batch([
        db.update(users).set({ claimsAt: -now }).where(mine),
        db.delete(sessions).where(eq(sessions.userId, user)),
        db.insert(auditLog).values({ ...line, before: { confirmed: true }, after: { confirmed: false } }),
      ]),
    );
    await notifyRegistry(this.env, (registry) => registry.reloadSettings());
    this.forget(user);
  }
}
