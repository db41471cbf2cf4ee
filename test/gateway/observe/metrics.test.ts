import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { REQUESTS, REQUESTS_IN_FLIGHT, SERVER_DURATION } from '../../../gateway/observe/metric-families.ts';
import { type MetricsReport, OBSERVE_NAME } from '../../../gateway/observe/metrics-reporter.ts';
import { MetricStore } from '../../../shared/metrics/metric-store.ts';
import { patience } from '../../support/patience.ts';
import { seedKey } from '../accounts/seed.ts';
import { knock, refusal } from '../admin/support.ts';
import { evictDurableObject } from '../support/durable.ts';

const TOKEN = 'metrics-token-of-tests';
const observe = () => env.OBSERVE.getByName(OBSERVE_NAME);

async function page(key = TOKEN): Promise<string> {
  const response = await knock('GET', '/metrics', { key });
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  return response.text();
}

function report(source: string, sequence: number, requests: number, inFlight = 0): MetricsReport {
  const [counts, gauges] = [new MetricStore(), new MetricStore()];
  counts.count(REQUESTS, ['chat/completions', '200', ''], requests);
  gauges.set(REQUESTS_IN_FLIGHT, [], inFlight);
  return { source, sequence, counts: counts.state(), gauges: gauges.state() };
}

const OK = 'otela_requests_total{endpoint="chat/completions",status="200",error=""}';

test('the page is only for the metrics token and for operators that may read', async () => {
  await page();
  const [operator, provider, consumer] = await Promise.all(
    (['operator', 'provider', 'consumer'] as const).map((role) => seedKey(role)),
  );
  await page(operator?.key);
  for (const key of [provider?.key, consumer?.key])
    await refusal(knock('GET', '/metrics', { key }), 403, 'permission_denied');
  for (const key of [undefined, 'x', `${TOKEN}x`, TOKEN.slice(1), TOKEN.toUpperCase(), 'sk-otela-'.padEnd(52, 'a')])
    await refusal(knock('GET', '/metrics', { key }), 401, 'invalid_api_key');
  // The token gives access to nothing else.
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

test('a counter that was seen once never runs backwards, whatever the object loses', async () => {
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
    { timeout: patience(30_000), interval: 200 },
  );
});
