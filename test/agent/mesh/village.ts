/**
 * Agents that gossip over real sockets, in one process. Each starts without any known agent, or knows the first one.
 */
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { TestIssuer } from '../../support/mesh/issuer.ts';
import { Member, type MemberOptions } from '../../support/mesh/member.ts';
import { atEnd, eventually } from '../../support/processes.ts';

/** Timeout for gossip over sockets of one machine. */
export const WITHIN_MS = 15_000;
let born = 1_767_225_700;
/** Birth of the next session, in seconds: different for each. */
export const nextBirth = () => born++;

interface Village {
  issuer: TestIssuer;
  /** An agent that starts without any known agent, or knows the first one. */
  join(
    options?: Partial<Omit<MemberOptions, 'issuer'>> & { cluster?: string; provider?: string; issuer?: TestIssuer },
  ): Promise<Member>;
}

export function village(): Village {
  const issuer = new TestIssuer();
  let first: string | undefined;
  return {
    issuer,
    join: async ({ cluster, provider, issuer: by = issuer, ...options } = {}) => {
      const seed = new Uint8Array(createSeed());
      const names = {
        birth: nextBirth(),
        ...(cluster === undefined ? {} : { cluster }),
        ...(provider === undefined ? {} : { provider }),
      };
      const ticket = by.ticket(createSessionKey(seed).publicKey, names).bytes;
      const member = new Member({
        issuer: issuer.issuer,
        seed,
        ticket,
        listen: { host: '127.0.0.1', port: 0 },
        peers: first === undefined ? [] : [first],
        ...options,
      });
      atEnd(() => member.close());
      await member.open();
      first ??= member.mesh.addresses[0];
      return member;
    },
  };
}

export function createSeed(): Uint8Array {
  return globalThis.crypto.getRandomValues(new Uint8Array(32));
}

/** The serving nodes, as `member` sees them. */
export const serving = (member: Member) =>
  [...member.mesh.view()]
    .filter(({ entry, liveness }) => entry.state === 'SERVING' && liveness === 'alive')
    .map(({ entry }) => entry.session)
    .sort();

export const allSee = (members: readonly Member[], sessions: readonly string[]) =>
  eventually('all see the same', WITHIN_MS, () => {
    const wanted = [...sessions].sort().join();
    return members.every((member) => serving(member).join() === wanted) ? true : undefined;
  });

/**
 * Waits until each has a channel to each: until then the first one may be the only contact that the others share, and
 * its end has no witness.
 */
export const allMeet = (members: readonly Member[]) =>
  eventually('all have met', WITHIN_MS, () => {
    const met = (one: Member) => members.every((other) => one === other || one.mesh.channels.get(other.session));
    return members.every(met) ? true : undefined;
  });

export const sessionsOf = (members: readonly Member[]) => members.map(({ session }) => session);
