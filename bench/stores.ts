/**
 * `node bench/stores.ts`: the cost of a full store: a cold key among 100,000, and totals over 10 million requests of
 * 1,000 people in 90 days. The rows are written to the gateway's SQLite while it is down.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { KEY_PREFIX, newSecret } from '../gateway/accounts/secrets.ts';
import { Gateway } from '../test/support/gateway.ts';
import { endAll } from '../test/support/processes.ts';
import { quantile } from './stats.ts';

const KEYS = 100_000;
const DAYS = 90;
const PEOPLE = 1_000;
const REQUESTS = 10_000_000;
const DAY_MS = 86_400_000;

function storeOf(data: string): DatabaseSync {
  const files = readdirSync(join(data, 'd1'), { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.sqlite'))) {
    const store = new DatabaseSync(join(data, 'd1', file));
    if (store.prepare("SELECT 1 FROM sqlite_master WHERE name = 'usage_totals'").get() !== undefined) return store;
    store.close();
  }
  throw new Error('no store');
}

function fill(data: string): string[] {
  const store = storeOf(data);
  const some: string[] = [];
  store.exec('BEGIN');
  const key = store.prepare(`INSERT INTO api_keys (id, hash, prefix, name, role, created_at, no_track)
    VALUES (?, ?, ?, ?, 'consumer', 0, 0)`);
  for (let n = 0; n < KEYS; n++) {
    const { plaintext, hash, prefix } = newSecret(KEY_PREFIX);
    key.run(`key_${n}`, hash, prefix, `key ${n}`);
    if (n % 500 === 0) some.push(plaintext);
  }
  const total = store.prepare(`INSERT INTO usage_totals VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?, ?, 0, 0, ?, ?)`);
  // Each day, two thirds of the users send requests, each to one or two models.
  const rows = Math.floor((DAYS * PEOPLE * 2) / 3);
  const requests = Math.ceil(REQUESTS / rows);
  for (let n = 0; n < rows; n++) {
    const day = new Date(Date.now() - (n % DAYS) * DAY_MS).toISOString().slice(0, 10);
    const person = Math.floor(n / DAYS);
    const of = [
      `proj_${person % 40}`,
      `user_${person}`,
      `key_${person}`,
      `org/model-${n % 12}`,
      `lab-${n % 5}`,
    ] as const;
    total.run(day, ...of, requests, requests * 400, requests * 300, requests * 200, requests * 4_000);
  }
  store.exec('COMMIT');
  store.close();
  console.log(`${KEYS} keys, ${rows} rows of totals for ${rows * requests} requests`);
  return some;
}

async function time(path: string, key: string, base: string): Promise<number> {
  const startedAt = performance.now();
  const response = await fetch(`${base}${path}`, { headers: { authorization: `Bearer ${key}` } });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
  return performance.now() - startedAt;
}

const gateway = await Gateway.start();
await gateway.stop();
const keys = fill(gateway.data);
await gateway.restart();
await time('/v1/models', keys.pop() ?? '', gateway.url);
const cold: number[] = [];
const warm: number[] = [];
for (const key of keys) {
  cold.push(await time('/v1/models', key, gateway.url));
  warm.push(await time('/v1/models', key, gateway.url));
}
const [coldMs, warmMs] = [quantile(cold, 0.5), quantile(warm, 0.5)];
console.log(
  `a key: cold p50 ${coldMs.toFixed(2)} ms, warm ${warmMs.toFixed(2)} ms: ${(coldMs - warmMs).toFixed(2)} ms for the look-up`,
);
const from = new Date(Date.now() - 89 * DAY_MS).toISOString().slice(0, 10);
for (const by of ['day', 'project', 'user', 'model,provider', 'day,user']) {
  const times: number[] = [];
  for (let n = 0; n < 9; n++)
    times.push(await time(`/admin/usage?from=${from}&group_by=${by}`, gateway.adminKey, gateway.url));
  console.log(`totals by ${by}, 90 days: p50 ${quantile(times, 0.5).toFixed(0)} ms (allowed 200)`);
}
await endAll();
