/**
 * Brings a browser's conversations and those at the gateway to the same state. Everything is handed in, so that two
 * browsers can be tested without one.
 */
import type { KeptChanges } from '../../api/kept-conversations.ts';
import { merged } from '../merge-conversations.ts';
import type { Keeping, KeptItem, KeptStore } from './kept-state.ts';

/** The members of a conversation that the exchange reads. */
export interface Exchanged {
  id: string;
  title: string;
  createdAt: number;
  updatedAt: number;
  settings: unknown;
  threads: readonly Side[];
}
interface Side {
  model: string;
  turns: Readonly<Record<string, { state: string }>>;
  chosen: Readonly<Record<string, string>>;
}

export interface LocalStore<C extends Exchanged> {
  list(): Promise<readonly { id: string; updatedAt: number }[]>;
  get(id: string): Promise<C | undefined>;
  save(ours: C, base?: C): Promise<C | undefined>;
  delete(id: string): Promise<void>;
}

/** The gateway's side. */
export interface RemoteStore {
  list(after: number): Promise<KeptChanges>;
  read(id: string): Promise<{ revision: number; box: Uint8Array<ArrayBuffer> } | undefined>;
  write(id: string, base: number, box: Uint8Array<ArrayBuffer>): Promise<number | undefined>;
  remove(id: string): Promise<void>;
}

export interface Cipher {
  seal(id: string, text: string): Promise<Uint8Array<ArrayBuffer>>;
  open(id: string, box: Uint8Array<ArrayBuffer>): Promise<string>;
}

interface Stores<C extends Exchanged> {
  local: LocalStore<C>;
  kept: KeptStore;
  remote: RemoteStore;
  cipher: Cipher;
  /** Largest box that the gateway takes. */
  maxBytes: number;
}

/** `ended`: the conversations at the gateway were deleted, or have another key; nothing was exchanged. */
export type ExchangeResult = { state: 'ended' } | { state: 'done'; tooLarge: number };

export async function exchange<C extends Exchanged>(stores: Stores<C>, keeping: Keeping): Promise<ExchangeResult> {
  const { kept, remote } = stores;
  const changes = await remote.list(keeping.revision);
  if (changes.key?.salt !== keeping.salt) {
    await kept.clear();
    return { state: 'ended' };
  }
  const items = await kept.items();
  for (const { id, revision, deleted } of changes.data) {
    const item = items.get(id);
    if (item?.revision === revision) continue; // this browser's own change
    if (deleted) await takeDeletion(stores, id, item);
    else await takeChange(stores, id, item);
  }
  await kept.setKeeping({ ...keeping, revision: changes.revision });
  return { state: 'done', tooLarge: await giveChanges(stores) };
}

/** A conversation that this browser has changed since stays, and is given to the gateway again. */
async function takeDeletion<C extends Exchanged>({ local, kept }: Stores<C>, id: string, item: KeptItem | undefined) {
  const ours = await local.get(id);
  if (ours !== undefined && item?.updatedAt === ours.updatedAt) await local.delete(id);
  await kept.remove(id);
}

async function takeChange<C extends Exchanged>(stores: Stores<C>, id: string, item: KeptItem | undefined) {
  const { local, kept, remote, cipher } = stores;
  const ours = await local.get(id);
  // Deleted here since the last exchange: the deletion is given to the gateway below.
  if (ours === undefined && item !== undefined) return;
  const read = await remote.read(id);
  if (read === undefined) return; // deleted a moment ago: the next exchange says so
  const theirs = JSON.parse(await cipher.open(id, read.box)) as C;
  if (theirs.id !== id) throw new Error('the conversation has another id');
  const isUnchanged = ours === undefined || ours.updatedAt === item?.updatedAt || ours.updatedAt === theirs.updatedAt;
  await local.save(isUnchanged ? theirs : united(ours, theirs), ours);
  await kept.put({ id, revision: read.revision, updatedAt: theirs.updatedAt });
}

/** All turns of both. The newer one decides about title, settings and the shown branch. */
export function united<C extends Exchanged>(ours: C, theirs: C): C {
  const [older, newer] = ours.updatedAt < theirs.updatedAt ? [ours, theirs] : [theirs, ours];
  const nothing = { ...older, title: '', threads: older.threads.map(({ model }) => ({ model, turns: {}, chosen: {} })) };
  // A time of its own, so that both sides see a change.
  const { title } = newer;
  return { ...(merged(nothing, newer, older) as C), title, updatedAt: newer.updatedAt + 1 };
}

/** Returns the number of conversations that are too large for the gateway. */
async function giveChanges<C extends Exchanged>(stores: Stores<C>): Promise<number> {
  const { local, kept, remote, cipher, maxBytes } = stores;
  const items = await kept.items();
  const summaries = await local.list();
  const here = new Set(summaries.map(({ id }) => id));
  for (const { id } of items.values()) {
    if (here.has(id)) continue;
    await remote.remove(id);
    await kept.remove(id);
  }
  let tooLarge = 0;
  for (const { id, updatedAt } of summaries) {
    const item = items.get(id);
    if (item?.updatedAt === updatedAt) continue;
    const conversation = await local.get(id);
    if (conversation === undefined || isAnswering(conversation)) continue;
    const box = await cipher.seal(id, JSON.stringify(conversation));
    if (box.length > maxBytes) {
      tooLarge++;
      continue;
    }
    const revision = await remote.write(id, item?.revision ?? 0, box);
    // Undefined: another browser was faster. The next exchange reads its change and unites both.
    if (revision !== undefined) await kept.put({ id, revision, updatedAt: conversation.updatedAt });
  }
  return tooLarge;
}

/** While an answer streams, the conversation changes each second. */
function isAnswering({ threads }: Exchanged): boolean {
  return threads.some(({ turns }) => Object.values(turns).some(({ state }) => state === 'streaming'));
}
