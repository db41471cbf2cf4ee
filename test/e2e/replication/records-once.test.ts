/** Records that a follower sends count once, even if its key changes, and the counts of months fit into a response. */
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { deserialize, serialize } from 'node:v8';
import { afterEach, expect, it } from 'vitest';
import { GPU_METER_PREFIX, modelMeter, userMeter } from '../../../gateway/accounts/limits/limit-subjects.ts';
import type { LimitsObject, MonthCount } from '../../../gateway/accounts/limits/limits-object.ts';
import { advanceCounters } from '../../../gateway/hosts/node/backup/advance-counters.ts';
import { ACCOUNTS_FILE } from '../../../gateway/hosts/node/data/schema-version.ts';
import type { ChangeFeed } from '../../../gateway/hosts/node/replication/change-feed.ts';
import { FollowerTable } from '../../../gateway/hosts/node/replication/follower-table.ts';
import {
  budgetsPageSchema,
  recordsAnswerSchema,
  recordsSchema,
  subjectCountsSchema,
} from '../../../gateway/hosts/node/replication/messages.ts';
import { MonthCounts } from '../../../gateway/hosts/node/replication/month-counts.ts';
import { PrimaryServer } from '../../../gateway/hosts/node/replication/primary-server.ts';
import { openReplicationFile } from '../../../gateway/hosts/node/replication/replication-file.ts';
import { REPLICATION_FILE } from '../../../gateway/hosts/node/replication/role-file.ts';
import {
  LINK_ANSWER_MAX_BYTES,
  SignedGatewayClient,
} from '../../../gateway/hosts/node/replication/signed-gateway-client.ts';
import {
  type GatewayIdentity,
  SIGNED_HEADER,
  signRequest,
} from '../../../gateway/hosts/node/replication/signed-request.ts';
import { RecordQueue } from '../../../gateway/hosts/node/replication/usage-record-queue.ts';
import { certifyKey, GatewayIssuer } from '../../../gateway/issuer/issuer.ts';
import type { ObjectNamespace } from '../../../gateway/platform/object-context.ts';
import type { UsageObject } from '../../../gateway/usage/hour/usage-hour-object.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { atEnd, endAll, temporaryDirectory } from '../../support/processes.ts';
import { dial } from '../../support/raw.ts';

afterEach(endAll);

const seed = (n: number) => toBase64url(new Uint8Array(32).fill(n));
function identity(key: number): GatewayIdentity {
  const own = certifyKey(seed(1), seed(key), Math.floor(Date.now() / 1000));
  return { key: own, certificate: new GatewayIssuer(own).certificate, revoked: new Set() };
}
const WITHIN_MS = 20_000;

/** A primary with mocks of its objects. `counts`: what the limits report of one subject. */
async function first(counts: MonthCount[] = [], stallMs?: number) {
  const database = openReplicationFile(await temporaryDirectory('otela-first'));
  const added: unknown[] = [];
  const settled: string[] = [];
  const heard: MonthCount[] = [];
  const usage = { getByName: () => ({ add: async (rows: unknown[]) => void added.push(...rows) }) };
  const limits = {
    getByName: () => ({
      counts: async () => counts,
      settle: async (source: string) => void settled.push(source),
      hearCounts: async (_month: string, told: MonthCount[]) => void heard.push(...told),
    }),
  } as unknown as ObjectNamespace<LimitsObject>;
  const budgets = new MonthCounts(database, 'first');
  const primary = new PrimaryServer({
    identity: identity(2),
    role: () => ({ role: 'first', epoch: 0 }) as ReturnType<ConstructorParameters<typeof PrimaryServer>[0]['role']>,
    feed: { id: 'feed', last: 0, since: () => ({ rows: [], seq: 0, more: false }) } as unknown as ChangeFeed,
    members: new FollowerTable(database, () => performance.now()),
    limits,
    budgets,
    usage: usage as unknown as ObjectNamespace<UsageObject>,
    acceptStatement: () => 0,
    log: () => {},
  });
  const server = createServer((message, response) => neverRejects(primary.handle(message, response, stallMs)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  return {
    url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
    added,
    settled,
    heard,
    budgets,
    limits,
  };
}

it('records that a follower sends again under a new key, since it crashed before it heard that they are there, are taken once', async () => {
  const { url, added, settled } = await first();
  const directory = await temporaryDirectory('otela-follower');
  const settlement = JSON.stringify({ source: 'node', items: [] });
  const items = [
    { position: 1, kind: 'usage', name: '2026-11-25T09', body: JSON.stringify([{ session: 's', stream: 1 }]) },
    { position: 2, kind: 'settle', name: 'user:ada', body: settlement },
  ];
  const more = { position: 3, kind: 'settle', name: 'user:ada', body: settlement };
  for (const [key, sent] of [
    [3, items],
    [4, [...items, more]],
  ] as const) {
    const own = identity(key);
    // As at the gateway's start: its name is on disk from the first start on.
    const { own: origin } = new MonthCounts(openReplicationFile(directory), own.certificate.keyName);
    const link = new SignedGatewayClient(own);
    atEnd(() => link.close());
    const { answer } = await link.ask(url, '/gateway/records', { origin, items: sent }, recordsAnswerSchema, WITHIN_MS);
    expect(answer.position).toBe(sent.length);
  }
  expect(added.length).toBe(1);
  expect([settled.length, new Set(settled).size]).toEqual([2, 1]);
});

it('what a follower said to show that it is there counts once: said again by another, it would hold a part of limits back', async () => {
  const { url } = await first();
  const body = Buffer.from(JSON.stringify({ url: 'http://127.0.0.1:1', version: '1', cursor: null, waiting: 0 }));
  const { header } = signRequest(identity(3), { about: 'POST /gateway/follow', body }, Math.floor(Date.now() / 1000));
  const say = async () => {
    const init = { method: 'POST', headers: { [SIGNED_HEADER]: header }, body };
    return (await fetch(new URL('/gateway/follow', url), init)).status;
  };
  expect([await say(), await say()]).toEqual([200, 409]);
});

it('a follower that was restored from a backup hands over what it counts from then on, and nothing twice', async () => {
  const { url, added } = await first();
  const link = new SignedGatewayClient(identity(3));
  atEnd(() => link.close());
  const handOver = async (queue: RecordQueue) => {
    const asked = { origin: 'restored', items: queue.oldest() };
    const { answer } = await link.ask(url, '/gateway/records', asked, recordsAnswerSchema, WITHIN_MS);
    queue.done(answer.position);
  };
  const add = (queue: RecordQueue, stream: number) => queue.add('usage', '2026-11-25T09', [{ session: 's', stream }]);
  const [data, elsewhere] = [await temporaryDirectory('otela-follower'), await temporaryDirectory('otela-restored')];
  const database = openReplicationFile(data);
  const queue = new RecordQueue(database);
  add(queue, 1);
  database.rows('VACUUM INTO ?', [join(elsewhere, REPLICATION_FILE)]);
  add(queue, 2);
  add(queue, 3);
  await handOver(queue);
  advanceCounters(elsewhere);
  const restored = new RecordQueue(openReplicationFile(elsewhere));
  expect(restored.waiting).toBe(1);
  add(restored, 4);
  await handOver(restored);
  expect(restored.waiting).toBe(0);
  expect(added).toEqual([1, 2, 3, 4].map((stream) => expect.objectContaining({ stream })));
});

it('a restore skips numbers of records that it knows nothing of, and begins the feed of changes anew', async () => {
  const data = await temporaryDirectory('otela-restored');
  await mkdir(join(data, 'objects', 'TUNNEL'), { recursive: true });
  const node = new DatabaseSync(join(data, 'objects', 'TUNNEL', 'a.sqlite'));
  node.exec('CREATE TABLE pending (position INTEGER PRIMARY KEY AUTOINCREMENT, stream INTEGER NOT NULL)');
  const accounts = new DatabaseSync(join(data, ACCOUNTS_FILE));
  accounts.exec(
    "CREATE TABLE follow_feed (name TEXT PRIMARY KEY, value TEXT); INSERT INTO follow_feed VALUES ('id', 'a')",
  );
  advanceCounters(data);
  const { lastInsertRowid } = node.prepare('INSERT INTO pending (stream) VALUES (1)').run();
  expect(Number(lastInsertRowid)).toBeGreaterThan(2 ** 24);
  expect(accounts.prepare("SELECT value FROM follow_feed WHERE name = 'id'").get()?.value).not.toBe('a');
  node.close();
  accounts.close();
});

it('what a batch used after a restore is under numbers that no limit has, and totals that the accounts have are not added again', async () => {
  const data = await temporaryDirectory('otela-restored');
  const object = async (kind: string, name: string, script: string) => {
    await mkdir(join(data, 'objects', kind), { recursive: true });
    const made = new DatabaseSync(join(data, 'objects', kind, `${name}.sqlite`));
    made.exec(script);
    return made;
  };
  const batch = await object(
    'BATCH',
    'batch_1',
    'CREATE TABLE bill (position INTEGER PRIMARY KEY AUTOINCREMENT, chunk INTEGER NOT NULL)',
  );
  const hour = (shard: string) =>
    object(
      'USAGE',
      shard,
      `CREATE TABLE totals (name TEXT PRIMARY KEY, total TEXT); INSERT INTO totals VALUES ('a', '{}');
       CREATE TABLE sending (batch INTEGER NOT NULL, total TEXT NOT NULL);
       CREATE TABLE _keys (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID`,
    );
  const hours = [await hour('2026-11-25T09'), await hour('2026-11-25T10')];
  const setBatch = "INSERT INTO _keys VALUES ('batch', ?)";
  for (const one of hours) one.prepare(setBatch).run(serialize(3));
  const accounts = new DatabaseSync(join(data, ACCOUNTS_FILE));
  accounts.exec(
    `CREATE TABLE usage_batches (shard TEXT, batch INTEGER);
     INSERT INTO usage_batches VALUES ('2026-11-25T09', 5), ('2026-11-25T10', 3)`,
  );
  advanceCounters(data);
  const { lastInsertRowid } = batch.prepare('INSERT INTO bill (chunk) VALUES (1)').run();
  expect(Number(lastInsertRowid)).toBeGreaterThan(2 ** 24);
  const left = hours.map((one) => [
    one.prepare('SELECT count(*) AS n FROM totals').get()?.n,
    deserialize(one.prepare("SELECT value FROM _keys WHERE key = 'batch'").get()?.value as Uint8Array),
  ]);
  expect(left).toEqual([
    [0, 5],
    [1, 3],
  ]);
  for (const one of [batch, accounts, ...hours]) one.close();
});

it('months of many keys come in pages that fit an answer, and none is left out', async () => {
  const counts = Array.from({ length: 20_000 }, (_, n) => ({ origin: 'o'.repeat(40), id: `key_${n}`, tokens: n }));
  const { url, budgets, limits } = await first(counts);
  for (let n = 0; n < 12; n++) budgets.note(`project:${n}`);
  expect(JSON.stringify(await budgets.counts('project:0', limits)).length * 12).toBeGreaterThan(LINK_ANSWER_MAX_BYTES);
  const link = new SignedGatewayClient(identity(3));
  atEnd(() => link.close());
  const subjects: string[] = [];
  let pages = 0;
  for (let [seq, more] = [0, true]; more; pages++) {
    const { answer } = await link.ask(url, '/gateway/budgets', { seq }, budgetsPageSchema, WITHIN_MS);
    subjects.push(...answer.items.map(({ subject }) => subject));
    ({ seq, more } = answer);
  }
  expect(pages).toBeGreaterThan(2);
  expect(subjects).toEqual(Array.from({ length: 12 }, (_, n) => `project:${n}`));
});

it('months of one subject that no answer holds come in parts, and none is left out', async () => {
  const counts = Array.from({ length: 90_000 }, (_, n) => ({ origin: 'o'.repeat(64), id: `key_${n}`, tokens: n }));
  const { url, budgets, limits } = await first(counts);
  for (const subject of ['project:a', 'project:b']) budgets.note(subject);
  expect(JSON.stringify(await budgets.counts('project:a', limits)).length).toBeGreaterThan(LINK_ANSWER_MAX_BYTES);
  const link = new SignedGatewayClient(identity(3));
  atEnd(() => link.close());
  const told = new Map<string, Set<string>>();
  for (let [page, more]: [object, boolean] = [{ seq: 0 }, true]; more; ) {
    const { answer } = await link.ask(url, '/gateway/budgets', page, budgetsPageSchema, WITHIN_MS);
    for (const { subject, counts: some } of answer.items) {
      const ids = told.get(subject) ?? new Set();
      for (const { id } of some) ids.add(id);
      told.set(subject, ids);
    }
    ({ more } = answer);
    page = { seq: answer.seq, after: answer.after };
  }
  expect([...told].map(([subject, ids]) => [subject, ids.size])).toEqual([
    ['project:a', 90_000],
    ['project:b', 90_000],
  ]);
});

it('months of a model with the longest name that a node may publish are told, and handed over', async () => {
  const ofModel = modelMeter(userMeter(`user_${'0'.repeat(32)}`), 'm'.repeat(256));
  const counts = [`${GPU_METER_PREFIX}${ofModel}`, ofModel].map((id) => ({ origin: 'second', id, tokens: 1 }));
  const { url, budgets, heard } = await first(counts);
  budgets.note('project:a');
  const link = new SignedGatewayClient(identity(3));
  atEnd(() => link.close());
  const { answer } = await link.ask(url, '/gateway/budgets', { seq: 0 }, budgetsPageSchema, WITHIN_MS);
  expect(answer.items).toMatchObject([{ subject: 'project:a', counts }]);
  const items = [{ position: 1, kind: 'months', name: 'project:a', body: JSON.stringify(answer.items[0]) }];
  await link.ask(url, '/gateway/records', { origin: 'third', items }, recordsAnswerSchema, WITHIN_MS);
  expect(heard).toEqual(counts);
});

it('months of a subject with more keys than one item may have are handed over whole', async () => {
  const counts = Array.from({ length: 100_001 }, (_, n) => ({ origin: 'former', id: `key_${n}`, tokens: n }));
  const { url, limits, heard } = await first(counts);
  const link = new SignedGatewayClient(identity(3));
  atEnd(() => link.close());
  const former = new MonthCounts(openReplicationFile(await temporaryDirectory('otela-former')), 'former');
  former.note('project:a');
  former.depose();
  const queue = new RecordQueue(openReplicationFile(await temporaryDirectory('otela-queue')));
  await former.handOver(limits, queue, () => {});
  for (let items = queue.oldest(); items.length > 0; items = queue.oldest()) {
    const { answer } = await link.ask(
      url,
      '/gateway/records',
      { origin: 'former', items },
      recordsAnswerSchema,
      WITHIN_MS,
    );
    queue.done(answer.position);
  }
  expect(heard).toEqual(counts);
});

it('the primary takes each item of months, even if every character of each id is escaped in JSON', async () => {
  const id = '\u0001'.repeat(512);
  const counts = Array.from({ length: 5_001 }, () => ({ origin: 'o'.repeat(64), id, tokens: 2 ** 53 - 1 }));
  const former = new MonthCounts(openReplicationFile(await temporaryDirectory('otela-former')), 'former');
  former.note('project:a');
  former.depose();
  const bodies: string[] = [];
  const limits = { getByName: () => ({ counts: async () => counts }) } as never;
  await former.handOver(limits, { add: (_, __, body) => void bodies.push(JSON.stringify(body)) }, () => {});
  const taken = bodies.map((body) =>
    recordsSchema.safeParse({ items: [{ position: 1, kind: 'months', name: 'a', body }] }),
  );
  expect(taken.map(({ success }) => success)).toEqual(bodies.map(() => true));
  expect(bodies.flatMap((body) => subjectCountsSchema.parse(JSON.parse(body)).counts)).toHaveLength(5_001);
});

it('a gateway knows eight followers, also after a restart; a known one stays, and a removed one makes room', async () => {
  const database = openReplicationFile(await temporaryDirectory('otela-first'));
  const heard = (members: FollowerTable, n: number) =>
    members.update(`key${n}`, `http://gw${n}.test`, '0.1.0', 0, 4_000);
  const members = new FollowerTable(database, () => 0);
  expect(Array.from({ length: 10 }, (_, n) => heard(members, n))).toEqual([...new Array(8).fill(true), false, false]);
  const restarted = new FollowerTable(database, () => 0);
  expect([heard(restarted, 8), heard(restarted, 7)]).toEqual([false, true]);
  restarted.remove('key7');
  expect(heard(restarted, 8)).toBe(true);
  database.close();
});

it('strangers who begin messages and do not end them keep followers out for no longer than a body may stand still', async () => {
  const { url } = await first([], 500);
  const head = `POST /gateway/follow HTTP/1.1\r\nhost: ${url.host}\r\ncontent-length: 100\r\n\r\n{`;
  const idle = await Promise.all(Array.from({ length: 8 }, () => dial(url.href)));
  const answers = idle.map((socket) => once(socket, 'data'));
  for (const socket of idle) socket.write(head);
  // Two of these bodies are read concurrently, like those of followers of an earlier version, which sign no digest.
  const statuses = (await Promise.all(answers)).map(([text]) => String(text).slice(9, 12));
  expect(statuses.sort()).toEqual(['408', '408', '503', '503', '503', '503', '503', '503']);
  const body = Buffer.from(JSON.stringify({ url: 'http://127.0.0.1:1', version: '1', cursor: null, waiting: 0 }));
  const { header } = signRequest(identity(3), { about: 'POST /gateway/follow', body }, Math.floor(Date.now() / 1000));
  const said = await fetch(new URL('/gateway/follow', url), {
    method: 'POST',
    headers: { [SIGNED_HEADER]: header },
    body,
  });
  expect(said.status).toBe(200);
  for (const socket of idle) socket.destroy();
});
