/** Two browsers and a gateway that exchange conversations, without a browser. */
import { beforeEach, expect, it } from 'vitest';
import {
  type Cipher,
  type Exchanged,
  type Exchanges,
  exchange,
  type KeptItem,
  type KeptStore,
  type LocalStore,
  type RemoteStore,
} from '../../dashboard/chat/keep/exchange.ts';

const MAX_BYTES = 10_000;
const KEY = { salt: 'one', check: '' };

class Gateway implements RemoteStore {
  key: typeof KEY | null = KEY;
  revision = 0;
  readonly boxes = new Map<string, { revision: number; box: Uint8Array<ArrayBuffer> | undefined }>();
  writes = 0;
  /** Called before a write, to let another browser be faster. */
  meanwhile: (() => Promise<void>) | undefined;

  async list(after: number) {
    const data = [...this.boxes]
      .filter(([, { revision }]) => revision > after)
      .map(([id, { revision, box }]) => ({ id, revision, deleted: box === undefined }));
    return { key: this.key, revision: this.revision, data };
  }
  async read(id: string) {
    const found = this.boxes.get(id);
    return found?.box && { revision: found.revision, box: found.box };
  }
  async write(id: string, base: number, box: Uint8Array<ArrayBuffer>) {
    const { meanwhile } = this;
    this.meanwhile = undefined;
    await meanwhile?.();
    const before = this.boxes.get(id);
    if (base !== (before?.box === undefined ? 0 : before.revision)) return undefined;
    this.writes++;
    this.boxes.set(id, { revision: ++this.revision, box });
    return this.revision;
  }
  async remove(id: string) {
    if (this.boxes.get(id)?.box !== undefined) this.boxes.set(id, { revision: ++this.revision, box: undefined });
  }
}

class Browser implements LocalStore<Exchanged>, KeptStore<Exchanges> {
  readonly conversations = new Map<string, Exchanged>();
  readonly known = new Map<string, KeptItem>();
  /** A conversation that this browser cannot store. */
  full: string | undefined;
  stored: Exchanges | undefined = { salt: 'one', revision: 0 };

  async list() {
    return [...this.conversations.values()];
  }
  async get(id: string) {
    return this.conversations.get(id);
  }
  async save(ours: Exchanged) {
    if (this.full === ours.id) throw new Error('the disk is full');
    this.conversations.set(ours.id, ours);
    return ours;
  }
  async delete(id: string) {
    this.conversations.delete(id);
  }
  async keeping() {
    return this.stored;
  }
  async setKeeping(keeping: Exchanges) {
    this.stored = keeping;
  }
  async items() {
    return new Map(this.known);
  }
  async put(item: KeptItem) {
    this.known.set(item.id, item);
  }
  async remove(id: string) {
    this.known.delete(id);
  }
  async clear() {
    this.stored = undefined;
    this.known.clear();
  }
}

const cipher: Cipher = {
  seal: async (id, text) => new TextEncoder().encode(`${id}\n${text}`),
  open: async (id, box) => {
    const [head = '', text = ''] = new TextDecoder().decode(box).split('\n');
    if (head !== id) throw new Error('another conversation');
    return text;
  },
};

let gateway: Gateway;
let clock = 0;
beforeEach(() => {
  gateway = new Gateway();
});

/** Exchanges once. */
async function sync(browser: Browser) {
  if (browser.stored === undefined) throw new Error('this browser keeps nothing');
  return exchange({ local: browser, kept: browser, remote: gateway, cipher, maxBytes: MAX_BYTES }, browser.stored);
}

function said(browser: Browser, id: string, turn: string, state = 'done'): void {
  const before = browser.conversations.get(id);
  const turns = { ...before?.threads[0]?.turns, [turn]: { state } };
  clock += 10;
  browser.conversations.set(id, {
    ...{ id, title: before?.title ?? id, createdAt: before?.createdAt ?? clock, updatedAt: clock, settings: {} },
    threads: [{ model: 'm', turns, chosen: {} }],
  });
}
const turnsOf = (browser: Browser, id: string) => Object.keys(browser.conversations.get(id)?.threads[0]?.turns ?? {});

it('a second browser gets all conversations, and both see what the other adds', async () => {
  const [one, two] = [new Browser(), new Browser()];
  said(one, 'a', 'a1');
  said(one, 'b', 'b1');
  await sync(one);
  said(two, 'c', 'c1');
  await sync(two);
  expect([...two.conversations.keys()].toSorted()).toEqual(['a', 'b', 'c']);
  said(two, 'a', 'a2');
  await sync(two);
  await sync(one);
  expect(turnsOf(one, 'a')).toEqual(['a1', 'a2']);
  expect(one.conversations).toEqual(two.conversations);
  const { writes } = gateway;
  for (const browser of [one, two, one]) await sync(browser);
  expect(gateway.writes).toBe(writes);
});

it('changes of both browsers to one conversation are united, in either order', async () => {
  const [one, two] = [new Browser(), new Browser()];
  said(one, 'a', 'a1');
  await sync(one);
  await sync(two);
  said(one, 'a', 'of one');
  said(two, 'a', 'of two');
  // The second browser writes between the first one's list and its write.
  gateway.meanwhile = async () => void (await sync(two));
  await sync(one);
  for (const browser of [one, two, one, two]) await sync(browser);
  expect(turnsOf(one, 'a').toSorted()).toEqual(['a1', 'of one', 'of two']);
  expect(one.conversations).toEqual(two.conversations);
});

it('a deletion reaches the other browser, but not a conversation that it has changed since', async () => {
  const [one, two] = [new Browser(), new Browser()];
  for (const id of ['a', 'b']) said(one, id, `${id}1`);
  await sync(one);
  await sync(two);
  await one.delete('a');
  await one.delete('b');
  said(two, 'b', 'b2');
  await sync(one);
  await sync(two);
  expect([...two.conversations.keys()]).toEqual(['b']);
  await sync(one);
  expect(turnsOf(one, 'b')).toEqual(['b1', 'b2']);
});

it('an answer that is being written is given when it has ended, and a conversation that is too large is not', async () => {
  const one = new Browser();
  said(one, 'a', 'a1', 'streaming');
  said(one, 'b', 'x'.repeat(MAX_BYTES));
  said(one, 'c', 'c1');
  expect(await sync(one)).toEqual({ state: 'done', tooLarge: 1 });
  expect([...gateway.boxes.keys()]).toEqual(['c']);
  said(one, 'a', 'a1');
  await sync(one);
  expect([...gateway.boxes.keys()]).toEqual(['c', 'a']);
});

it('if the conversations at the gateway were deleted, a browser keeps its own and stops', async () => {
  const one = new Browser();
  said(one, 'a', 'a1');
  await sync(one);
  gateway.key = null;
  gateway.boxes.clear();
  expect(await sync(one)).toEqual({ state: 'ended' });
  expect([one.stored, one.known.size, one.conversations.size]).toEqual([undefined, 0, 1]);
});

it('a conversation that cannot be opened or stored keeps no other from being exchanged', async () => {
  const [one, two] = [new Browser(), new Browser()];
  for (const id of ['a', 'b', 'c', 'd']) said(one, id, `${id}1`);
  await sync(one);
  const changed = gateway.boxes.get('b')?.box;
  if (changed === undefined) throw new Error('no box');
  changed[0] = 0;
  two.full = 'c';
  said(two, 'e', 'e1');
  expect(await sync(two)).toMatchObject({ state: 'done', failed: new Error('another conversation') });
  expect([...two.conversations.keys()].toSorted()).toEqual(['a', 'd', 'e']);
  expect(gateway.boxes.get('e')?.box).toBeDefined();
  // The next exchange tries them again.
  two.full = undefined;
  changed[0] = 'b'.charCodeAt(0);
  expect(await sync(two)).toEqual({ state: 'done', tooLarge: 0 });
  expect([...two.conversations.keys()].toSorted()).toEqual(['a', 'b', 'c', 'd', 'e']);
});

it('if many conversations fail, the exchange ends with an error', async () => {
  const [one, two] = [new Browser(), new Browser()];
  for (let n = 0; n < 20; n++) said(one, `id${n}`, 'a');
  await sync(one);
  let reads = 0;
  gateway.read = async () => {
    reads++;
    throw new Error('away');
  };
  await expect(sync(two)).rejects.toThrow('away');
  expect(reads).toBe(11);
});
