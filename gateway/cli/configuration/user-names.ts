/** How a configuration file names users: by their identity, by their e-mail address, or by their name. */
import { emailSchema } from '../../http/common-schemas.ts';
import type { Entry } from './entry.ts';

interface UserIdentity {
  id: string;
  name: string;
  email: string | null;
  issuer: string | null;
  subject: string | null;
}

/** Adds what the key of an entry stands for: an e-mail address, or else the name of the user. */
export function withOwnName(key: string, entry: Entry): Entry {
  return { [emailSchema.safeParse(key).success ? 'email' : 'name']: key, ...entry };
}

/** Returns the users that an entry may mean. The entry is clear if there is at most one. */
export function matchingUsers<User extends UserIdentity>(entry: Entry, users: readonly User[]): User[] {
  const { issuer, subject, email, name } = entry;
  if (issuer !== undefined) return users.filter((user) => user.issuer === issuer && user.subject === subject);
  const withoutAddress = users.filter((user) => user.email === null && user.name === name);
  if (typeof email !== 'string') return withoutAddress;
  const address = email.toLowerCase();
  const found = users.filter((user) => user.email?.toLowerCase() === address);
  if (found.length === 0) return withoutAddress;
  const named = found.filter((user) => user.name === name);
  return found.length > 1 && named.length > 0 ? named : found;
}

/**
 * Returns the users' names in a file, by id. A user that no name distinguishes from the others gets none.
 * @param preferred names that a file already has, by id
 */
export function nameUsers(users: readonly UserIdentity[], preferred: ReadonlyMap<string, string>): Map<string, string> {
  const uses = new Map<string, number>();
  const candidates = users.map((user) => {
    const { email, name, issuer, subject } = user;
    const identity = issuer === null || subject === null ? [] : [`${subject} at ${issuer}`.slice(0, 256)];
    const names = [...new Set([...(email === null ? [] : [email]), name, ...identity])];
    for (const one of names) uses.set(one, (uses.get(one) ?? 0) + 1);
    return [user, names] as const;
  });
  const named = new Map(preferred);
  const taken = new Set(preferred.values());
  for (const [user, names] of candidates) {
    if (named.has(user.id)) continue;
    const free = names.find((one) => uses.get(one) === 1 && !taken.has(one));
    const { name, email, issuer, subject } = user;
    const entry = { name, ...(email !== null && { email }), ...(issuer !== null && { issuer, subject }) };
    if (free !== undefined && matchingUsers(entry, users).length === 1) named.set(user.id, free);
  }
  return named;
}
