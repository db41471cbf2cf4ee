import { evictDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { FAMILIES, IN_FLIGHT, RECORDS, REQUESTS, SERVER_DURATION } from '../../../gateway/observe/families.ts';
import { OBSERVE_NAME, type Report } from '../../../gateway/observe/report.ts';
import { countRow } from '../../../gateway/usage/count-row.ts';
import { Book } from '../../../shared/metrics/book.ts';
import { exposition } from '../../../shared/metrics/exposition.ts';
import { flawOf } from '../../../shared/metrics/family.ts';
import { seedKey } from '../accounts/seed.ts';
import { knock, refusal } from '../admin/support.ts';

const TOKEN = 'metrics-token-of-tests';
const observe = () => env.OBSERVE.getByName(OBSERVE_NAME);

async function page(key = TOKEN): Promise<string> {
  const response = await knock('GET', '/metrics', { key });
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  return response.text();
}

function report(source: string, sequence: number, requests: number, inFlight = 0): Report {
  const [counts, gauges] = [new Book(), new Book()];
  counts.count(REQUESTS, ['chat/completions', '200', ''], requests);
  gauges.set(IN_FLIGHT, [], inFlight);
  return { source, sequence, counts: counts.state(), gauges: gauges.state() };
}

const OK = 'otela_requests_total{endpoint="chat/completions",status="200",error=""}';

test('the table of metrics is one that Prometheus takes', () => {
  expect(flawOf(FAMILIES)).toBeUndefined();
});

test('the page is for the metrics token and for operators who may read, and for nobody else', async () => {
  await page();
  const [operator, provider, consumer] = await Promise.all(
    (['operator', 'provider', 'consumer'] as const).map((role) => seedKey(role)),
  );
  await page(operator?.key);
  for (const key of [provider?.key, consumer?.key])
    await refusal(knock('GET', '/metrics', { key }), 403, 'permission_denied');
  for (const key of [undefined, 'x', `${TOKEN}x`, TOKEN.slice(1), TOKEN.toUpperCase(), 'sk-otela-'.padEnd(52, 'a')])
    await refusal(knock('GET', '/metrics', { key }), 401, 'invalid_api_key');
  // It opens nothing else.
  await refusal(knock('GET', '/admin/keys', { key: TOKEN }), 401, 'invalid_api_key');
});

test('a report counts once however often it comes, and what is so now is that of all places together', async () => {
  await observe().add(report('a', 1, 3, 2));
  await observe().add(report('a', 1, 3, 2));
  await observe().add(report('b', 1, 4, 5));
  const first = await page();
  expect(first).toContain(`${OK} 7\n`);
  expect(first).toContain('otela_requests_in_flight 7\n');
  await observe().add(report('a', 2, 1, 0));
  await observe().add(report('a', 1, 3, 9));
  const second = await page();
  expect(second).toContain(`${OK} 8\n`);
  expect(second).toContain('otela_requests_in_flight 5\n');
});

test('a counter that was seen once never runs backwards, whatever the object forgets', async () => {
  await observe().add(report('c', 1, 10));
  const before = Number(new RegExp(`${OK.replace(/[{}]/g, '\\$&')} (\\d+)`).exec(await page())?.[1]);
  expect(before).toBeGreaterThanOrEqual(10);
  await evictDurableObject(observe());
  expect(await page()).toContain(`${OK} ${before}\n`);
});

test('records that nodes cannot hand on are seen while they wait', async () => {
  const waiting = async () => /otela_usage_outbox_waiting (\d+)\n/.exec(await page())?.[1];
  await observe().outbox('a'.repeat(26), 3);
  await observe().outbox('b'.repeat(26), 4);
  expect(await waiting()).toBe('7');
  await observe().outbox('b'.repeat(26), 0);
  expect(await waiting()).toBe('3');
});

test('the registry is on it, in numbers', async () => {
  const text = await page();
  expect(text).toContain('otela_registry_nodes{state="SERVING"} 0\n');
  expect(text).toContain('otela_tunnels_open 0\n');
  expect(text).toMatch(/\notela_certificate_end_timestamp_seconds \d{10}\n/);
});

test('requests that find no model are counted by their error, and what they ask for is no label', async () => {
  const { key } = await seedKey('consumer');
  const body = { model: 'a-name-that-a-stranger-made-up', messages: [] };
  await refusal(knock('POST', '/v1/chat/completions', { key, body }), 404, 'model_not_found');
  await refusal(knock('POST', '/v1/nonsense', { key, body }), 404, 'not_found');
  await vi.waitFor(
    async () => {
      const text = await page();
      expect(text).toContain('{endpoint="chat/completions",status="404",error="model_not_found"} 1\n');
      expect(text).toContain('{endpoint="",status="404",error="not_found"} 1\n');
      expect(text).not.toContain('stranger');
      expect(text).not.toContain('nonsense');
      expect(text).not.toContain(SERVER_DURATION.name);
      expect(text).toContain('otela_requests_in_flight 0\n');
    },
    { timeout: 10_000, interval: 200 },
  );
});

const ROW = {
  ...{ session: 'a'.repeat(26), key: 'key_1' },
  ...{ at: 0, provider: 'eth', model: 'm', endpoint: 1, streamed: true, status: 200, prompt: 10, completion: 11 },
  ...{ cached: 4, reasoning: 0, firstMs: 250, totalMs: 1_250, aborted: false, estimated: false, complete: true },
};

test('a record of use tells the times and tokens of its attempt', () => {
  const book = new Book();
  countRow(book, ROW, 2_000);
  const text = exposition(FAMILIES, book);
  const of = 'gen_ai_operation_name="chat",gen_ai_provider_name="eth",gen_ai_request_model="m"';
  expect(text).toContain(`gen_ai_client_operation_duration_seconds_sum{${of},error_type=""} 1.25\n`);
  expect(text).toContain(`gen_ai_server_time_to_first_token_seconds_sum{${of}} 0.25\n`);
  expect(text).toContain(`gen_ai_server_time_per_output_token_seconds_sum{${of}} 0.1\n`);
  expect(text).toContain(`gen_ai_client_token_usage_sum{${of},gen_ai_token_type="input"} 10\n`);
  expect(text).toContain(`gen_ai_client_token_usage_sum{${of},gen_ai_token_type="output"} 11\n`);
  expect(text).toContain('otela_tokens_total{gen_ai_request_model="m",kind="cached"} 4\n');
  expect(text).toContain('otela_usage_delay_seconds_sum 2\n');
});

test('names that nobody checked are no labels: of models an ingress says it served, and of refused requests', () => {
  const book = new Book();
  countRow(book, { ...ROW, key: 'ingress:eth', model: 'made-up' }, 0);
  countRow(book, { ...ROW, session: '', model: 'made-up', times: 7 }, 0);
  const text = exposition(FAMILIES, book);
  expect(text).not.toContain('made-up');
  expect(text).toContain(`${RECORDS.name}{certainty="refused"} 7\n`);
});

test.each([
  ['503', { status: 503, complete: false }],
  ['client_left', { aborted: true, complete: false }],
  ['incomplete', { complete: false }],
  ['incomplete', { status: 0, complete: false }],
])('an attempt that went wrong is told as %s, and spoils no time per token', (error, more) => {
  const book = new Book();
  countRow(book, { ...ROW, ...more }, 0);
  const text = exposition(FAMILIES, book);
  expect(text).toContain(`error_type="${error}"`);
  expect(text).not.toContain('time_per_output_token');
});

test('rows are counted where they are stored, each once', async () => {
  const { session, stream } = { session: 'a'.repeat(26), stream: 1 };
  const rest = { request: 'r', attempt: 1, user: '', project: '', bytes: 1, traced: false };
  const row = { ...ROW, ...rest, session, stream, at: Date.now(), estimated: true, model: 'counted-once' };
  const shard = env.USAGE.getByName('2026-11-20T10');
  await shard.add([row, row]);
  await shard.add([{ ...row, estimated: false }]);
  await shard.add([row]);
  const sum = /gen_ai_client_token_usage_sum\{[^}]*"counted-once",gen_ai_token_type="input"\} (\d+)\n/;
  await vi.waitFor(async () => expect(sum.exec(await page())?.[1]).toBe('10'), { timeout: 10_000, interval: 200 });
  expect(await page()).toContain(`${RECORDS.name}{certainty="estimated"} 1\n`);
});
