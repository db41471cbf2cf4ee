import { describe, expect, it } from 'vitest';
import type { GossipAction } from '../../../shared/gossip/index.ts';
import type { Digest } from '../../../shared/lattice/replica-digest.ts';
import { One, ofType, partsTo } from './one.ts';

/** Longer than a wave takes, and shorter than a probe, because no member here answers a probe. */
const LATER_MS = 110;

/** Core 0 of twelve, with a channel to each of `members`. */
function hub(...members: number[]): One {
  const one = new One('agent', [12]);
  one.open(...members);
  return one;
}

/** Members that were sent news. */
function told(one: One, actions: readonly GossipAction[]): number[] {
  return one.members.flatMap(({ session }, i) => (ofType(partsTo(actions, session), 'news').length > 0 ? [i] : []));
}

/** The digest of a peer that has everything that `one` has of this member. */
function has(one: One, member: number): Digest {
  const id = one.replica.get(one.id(member))?.item.id;
  const { issuer, items } = one.replica.digest({ issuer: one.issuer.id });
  return { issuer, items: items.filter((item) => item.id === id) };
}

const news = (one: One, of: number) => ({ type: 'news', update: one.member(of).say('SERVING', true) }) as const;

describe('the tree', () => {
  it('begins with every channel, less the one that told', () => {
    const one = hub(1, 2, 3, 4, 5);
    expect(told(one, one.say(2, news(one, 9)))).toEqual([1, 3, 4, 5]);
  });

  it('loses the branch whose end had received it from another node', () => {
    const one = hub(1, 2, 3, 4);
    one.say(1, news(one, 9));
    one.say(3, { type: 'have', digest: has(one, 9) });
    one.pass(LATER_MS);
    expect(told(one, one.say(1, news(one, 9)))).toEqual([2, 4]);
    // Only the outgoing direction is cut: news from 3 is still read and passed on.
    one.pass(LATER_MS);
    expect(told(one, one.say(3, news(one, 8)))).toEqual([1, 2, 4]);
  });

  it('tells the second sender that it need not send', () => {
    const one = hub(1, 2, 3);
    const word = news(one, 9);
    one.say(1, word);
    const answer = partsTo(one.say(2, word), one.id(2));
    expect(ofType(answer, 'have').map(({ digest }) => digest)).toEqual([has(one, 9)]);
  });

  it('keeps both branches where two waves come at once from two sides', () => {
    const one = hub(1, 2, 3);
    const [left, right] = [news(one, 8), news(one, 9)];
    one.say(1, left);
    one.say(2, right);
    expect(ofType(partsTo([...one.say(2, left), ...one.say(1, right)]), 'have')).toEqual([]);
    // Later, after 2 has brought nothing for a while, it is the second way again.
    one.pass(LATER_MS);
    const later = news(one, 8);
    one.say(1, later);
    expect(ofType(partsTo(one.say(2, later), one.id(2)), 'have')).toHaveLength(1);
  });

  it('is not cut by what comes from another cluster, which enters at several places', () => {
    const one = new One('agent', [12, 3]);
    one.open(1, 2, 3);
    const foreign = news(one, 13);
    one.say(1, foreign);
    expect(partsTo(one.say(2, foreign))).toEqual([]);
    one.say(3, { type: 'have', digest: has(one, 13) });
    one.pass(LATER_MS);
    expect(told(one, one.say(1, news(one, 9)))).toEqual([2, 3]);
  });

  it('has the next on the ring asked, once and after a while, unless it is known to have it', () => {
    const one = hub(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    const ring = one.members.map(({ session }) => session).sort();
    const next = one.members.findIndex(({ session }) => session === ring[(ring.indexOf(one.id(0)) + 1) % 12]);
    const [teller = 0, about = 0] = [1, 2, 3].filter((i) => i !== next);
    const asked = (actions: GossipAction[]) =>
      ofType(partsTo(actions, one.id(next)), 'have').filter(
        ({ digest }) => digest.items[0]?.id === has(one, about).items[0]?.id,
      ).length;
    one.say(teller, news(one, about));
    // It received the news, and reports that it already had it from another member: not a branch any more.
    one.say(next, { type: 'have', digest: has(one, about) });
    expect(asked(one.pass(LATER_MS))).toBe(0);
    one.say(teller, news(one, about));
    expect(asked(one.pass(15))).toBe(0);
    expect(asked(one.pass(LATER_MS))).toBe(1);
    expect(asked(one.pass(LATER_MS))).toBe(0);
  });

  it('grows a branch where a node lacked the update, which then passes it on', () => {
    const one = hub(1, 2, 3);
    one.say(1, news(one, 9));
    one.say(3, { type: 'have', digest: has(one, 9) });
    one.pass(LATER_MS);
    one.say(1, news(one, 9));
    const { issuer, items } = has(one, 9);
    const given = one.say(3, { type: 'wants', issuer, ids: items.map(({ id }) => id) });
    expect(told(one, given)).toEqual([3]);
    one.pass(LATER_MS);
    expect(told(one, one.say(1, news(one, 9)))).toEqual([2, 3]);
  });

  it('repairs, and grows nothing, where what is lacked is no news', () => {
    const one = hub(1, 2, 3);
    one.say(1, news(one, 9));
    one.say(3, { type: 'have', digest: has(one, 9) });
    const { issuer, items } = has(one, 7);
    const given = partsTo(one.say(3, { type: 'wants', issuer, ids: items.map(({ id }) => id) }), one.id(3));
    expect(given.map(({ type }) => type)).toEqual(['repair']);
    one.pass(LATER_MS);
    expect(told(one, one.say(1, news(one, 9)))).toEqual([2]);
  });

  it('remembers the last words alone: memory does not grow with a flood', () => {
    const one = hub(1, 2, 3);
    const update = news(one, 9);
    one.say(1, update);
    for (let i = 0; i < 600; i++) {
      const member = one.issuer.admit(
        { provider: 'lab', cluster: 'c0', birth: 1_800_000_000 + i },
        one.member(0).signer,
        `h${i}`,
      );
      one.say(2, { type: 'news', update: member.say('LEFT', true) });
    }
    // The update was forgotten, so no branch is cut for it, and no member is sent anything.
    expect(partsTo(one.say(3, update))).toEqual([]);
  });
});
