/**
 * Brings a browser's conversations and those at the gateway to the same state. Everything is handed in, so that two
 * browsers can be tested without one.
 */
import { merged } from '../merge-conversations.ts';

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

/** The state of the last exchange. */
export interface Exchanges {
  /** The salt of the key. It shows whether the gateway still has the same conversations. */
  salt: string;
  /** The newest revision that this browser has seen. */
  revision: number;
}

/** A conversation that this browser and the gateway had in common. */
export interface KeptItem {
  id: string;
  revision: number;
  /** Its time of change then. */
  updatedAt: number;
}

/** What this browser knows about the gateway's side. */
export interface KeptStore<K extends Exchanges> {
  keeping(): Promise<K | undefined>;
  setKeeping(keeping: K): Promise<void>;
  items(): Promise<Map<string, KeptItem>>;
  put(item: KeptItem): Promise<void>;
  remove(id: string): Promise<void>;
  /** Forgets the key and all items. The conversations stay. */
  clear(): Promise<void>;
}

interface KeptChanges {
  key: { salt: string } | null;
  revision: number;
  data: readonly { id: string; revision: number; deleted: boolean }[];
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

interface Stores<C extends Exchanged, K extends Exchanges> {
  local: LocalStore<C>;
  kept: KeptStore<K>;
  remote: RemoteStore;
  cipher: Cipher;
  /** Largest box that the gateway takes. */
  maxBytes: number;
}

/** `ended`: the conversations at the gateway were deleted, or have another key; nothing was exchanged. */
export type ExchangeResult =
  | { state: 'ended' }
  /** `failed`: why a conversation could not be exchanged; all others were. It is tried again by the next exchange. */
  | { state: 'done'; tooLarge: number; failed?: unknown };

/** After more failures, the exchange ends: the gateway may be away. */
const FAILURES_MAX = 10;

/** Errors of single conversations. The others are exchanged although they occurred. */
class Failures {
  /** The first error. */
  error: unknown;
  #count = 0;

  get any(): boolean {
    return this.#count > 0;
  }

  /** @throws the error of `work`, as a rejection, after FAILURES_MAX others */
  async guard(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      if (this.#count >= FAILURES_MAX) throw error;
      if (!this.any) this.error = error;
      this.#count++;
    }
  }
}

export async function exchange<C extends Exchanged, K extends Exchanges>(
  stores: Stores<C, K>,
  keeping: K,
): Promise<ExchangeResult> {
  const { kept, remote } = stores;
  const changes = await remote.list(keeping.revision);
  if (changes.key?.salt !== keeping.salt) {
    await kept.clear();
    return { state: 'ended' };
  }
  const items = await kept.items();
  const failures = new Failures();
  for (const { id, revision, deleted } of changes.data) {
    const item = items.get(id);
    if (item?.revision === revision) continue; // this browser's own change
    await failures.guard(deleted ? takeDeletion(stores, id, item) : takeChange(stores, id, item));
  }
  // The next exchange reads again what failed.
  if (!failures.any) await kept.setKeeping({ ...keeping, revision: changes.revision });
  const tooLarge = await giveChanges(stores, failures);
  return { state: 'done', tooLarge, ...(failures.any && { failed: failures.error }) };
}

/** A conversation that this browser has changed since stays, and is given to the gateway again. */
async function takeDeletion<C extends Exchanged, K extends Exchanges>(
  { local, kept }: Stores<C, K>,
  id: string,
  item: KeptItem | undefined,
) {
  const ours = await local.get(id);
  if (ours !== undefined && item?.updatedAt === ours.updatedAt) await local.delete(id);
  await kept.remove(id);
}

async function takeChange<C extends Exchanged, K extends Exchanges>(
  stores: Stores<C, K>,
  id: string,
  item: KeptItem | undefined,
) {
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
  const nothing = {
    ...older,
    title: '',
    threads: older.threads.map(({ model }) => ({ model, turns: {}, chosen: {} })),
  };
  // A new time, so that both sides see a change.
  const { title } = newer;
  return { ...(merged(nothing, newer, older) as C), title, updatedAt: newer.updatedAt + 1 };
}

/** Returns the number of conversations that are too large for the gateway. */
async function giveChanges<C extends Exchanged, K extends Exchanges>(
  stores: Stores<C, K>,
  failures: Failures,
): Promise<number> {
  const { local, kept, remote } = stores;
  const items = await kept.items();
  const summaries = await local.list();
  const here = new Set(summaries.map(({ id }) => id));
  for (const { id } of items.values()) {
    if (!here.has(id)) await failures.guard(remote.remove(id).then(() => kept.remove(id)));
  }
  let tooLarge = 0;
  const onTooLarge = () => {
    tooLarge++;
  };
  for (const { id, updatedAt } of summaries) {
    const item = items.get(id);
    if (item?.updatedAt !== updatedAt) await failures.guard(giveChange(stores, id, item, onTooLarge));
  }
  return tooLarge;
}

async function giveChange<C extends Exchanged, K extends Exchanges>(
  { local, kept, remote, cipher, maxBytes }: Stores<C, K>,
  id: string,
  item: KeptItem | undefined,
  onTooLarge: () => void,
): Promise<void> {
  const conversation = await local.get(id);
  if (conversation === undefined || isAnswering(conversation)) return;
  const box = await cipher.seal(id, JSON.stringify(conversation));
  if (box.length > maxBytes) return onTooLarge();
  const revision = await remote.write(id, item?.revision ?? 0, box);
  // Undefined: another browser was faster. The next exchange reads its change and unites both.
  if (revision !== undefined) await kept.put({ id, revision, updatedAt: conversation.updatedAt });
}

/** While an answer streams, the conversation changes each second. */
function isAnswering({ threads }: Exchanged): boolean {
  return threads.some(({ turns }) => Object.values(turns).some(({ state }) => state === 'streaming'));
}
