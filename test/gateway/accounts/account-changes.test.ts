/** Changes of accounts that a process reads from the audit log. */
import { expect, test } from 'vitest';
import { AccountChanges } from '../../../gateway/accounts/account-changes.ts';

const CHANGED_MAX = 2_000;
const account = { keyId: 'k', grantedBy: 'parent', userId: 'u', projectId: 'p', seen: 10 };

test('an account is stale after a change of its key, the key that granted it, its user or its project', () => {
  for (const object of ['k', 'parent', 'u', 'p']) {
    const changes = new AccountChanges();
    changes.add([{ id: 11, object, action: 'key.revoke' }]);
    expect(changes.isStale(account)).toBe(true);
    expect(changes.isStale({ ...account, seen: 11 })).toBe(false);
  }
});

test('changes of other objects and of other kinds leave it', () => {
  const changes = new AccountChanges();
  changes.add([
    { id: 11, object: 'other', action: 'key.revoke' },
    { id: 12, object: 'k', action: 'provider.update' },
  ]);
  expect(changes.isStale(account)).toBe(false);
});

test('a change of the settings makes every account stale that was read before', () => {
  const changes = new AccountChanges();
  changes.add([{ id: 11, object: 'settings', action: 'settings.update' }]);
  expect(changes.isStale(account)).toBe(true);
  expect(changes.isStale({ ...account, seen: 11 })).toBe(false);
});

test('after more changes than are remembered, accounts from before the oldest are stale', () => {
  const changes = new AccountChanges();
  changes.add(
    Array.from({ length: CHANGED_MAX + 1 }, (_, n) => ({ id: 100 + n, object: `o${n}`, action: 'user.update' })),
  );
  expect(changes.isStale(account)).toBe(true);
  expect(changes.isStale({ ...account, seen: 100 })).toBe(false);
});
