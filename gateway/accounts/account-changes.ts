/**
 * Accounts that changed, as this process reads it from the audit log. Several processes share the log; the registry's
 * snapshot names the changes, too, but not while the registry moves to another process. Pure.
 */
import type { Account } from './account.ts';
import { OF_ACCOUNTS } from './gateway-settings.ts';

/** Maximum objects that are remembered. Above it, accounts that were read before the oldest change are stale. */
const CHANGED_MAX = 2_000;

export interface AuditLine {
  id: number;
  /** Id of the key, user or project. */
  object: string;
  action: string;
}

export class AccountChanges {
  /** From a key, user or project to its last change. At most CHANGED_MAX, oldest first. */
  readonly #changed = new Map<string, number>();
  /** Accounts that were read before this change are stale. */
  #since = 0;

  /** Adds lines of the audit log in their order. */
  add(lines: readonly AuditLine[]): void {
    for (const { id, object, action } of lines) {
      // A change of the settings may have changed the trusted identity providers.
      if (action === 'settings.update') this.#since = id;
      if (!OF_ACCOUNTS.test(action)) continue;
      this.#changed.delete(object);
      this.#changed.set(object, id);
      const [oldest] = this.#changed;
      if (this.#changed.size <= CHANGED_MAX || oldest === undefined) continue;
      this.#changed.delete(oldest[0]);
      this.#since = Math.max(this.#since, oldest[1]);
    }
  }

  /** True if something on which the account depends changed after the account was read. */
  isStale({
    keyId,
    grantedBy,
    userId,
    projectId,
    seen,
  }: Pick<Account, 'keyId' | 'grantedBy' | 'userId' | 'projectId' | 'seen'>): boolean {
    if (seen < this.#since) return true;
    if (this.#changed.size === 0) return false;
    return [keyId, grantedBy, userId, projectId].some((id) => id !== undefined && (this.#changed.get(id) ?? 0) > seen);
  }
}
