/** Traces and logs by OTLP, as a collector gets them: a mock collector reads the protocol's JSON. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { Otlp } from '../../gateway/hosts/node/telemetry/otlp.ts';
import { atEnd, endAll, eventually } from '../support/processes.ts';
import { chatBody, MODEL, openTestCluster } from '../support/test-cluster.ts';

afterEach(endAll);
afterEach(() => vi.unstubAllEnvs());

const valueSchema = z.looseObject({
  stringValue: z.string().optional(),
  intValue: z.union([z.string(), z.number()]).optional(),
});
const attributesSchema = z.array(z.object({ key: z.string(), value: valueSchema }));
const resource = z.object({ attributes: attributesSchema });
const spanSchema = z.looseObject({
  traceId: z.string().regex(/^[0-9a-f]{32}$/),
  spanId: z.string().regex(/^[0-9a-f]{16}$/),
  parentSpanId: z.string().optional(),
  name: z.string(),
  kind: z.number(),
  startTimeUnixNano: z.string(),
  endTimeUnixNano: z.string(),
  attributes: attributesSchema,
});
const tracesSchema = z.object({
  resourceSpans: z.array(
    z.looseObject({ resource, scopeSpans: z.array(z.looseObject({ spans: z.array(spanSchema) })) }),
  ),
});
const logsSchema = z.object({
  resourceLogs: z.array(
    z.looseObject({
      scopeLogs: z.array(
        z.looseObject({
          logRecords: z.array(z.looseObject({ eventName: z.string().optional(), attributes: attributesSchema })),
        }),
      ),
    }),
  ),
});

async function collector() {
  const bodies: { path: string; body: string }[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (piece: string) => {
      body += piece;
    });
    request.on('end', () => {
      bodies.push({ path: request.url ?? '', body });
      response.setHeader('content-type', 'application/json').end('{}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  const of = <T>(path: string, schema: z.ZodType<T>) =>
    bodies.filter((one) => one.path === path).map(({ body }) => schema.parse(JSON.parse(body)));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: () =>
      of('/v1/traces', tracesSchema).flatMap(({ resourceSpans }) =>
        resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans)),
      ),
    logs: () =>
      of('/v1/logs', logsSchema).flatMap(({ resourceLogs }) =>
        resourceLogs.flatMap(({ scopeLogs }) => scopeLogs.flatMap(({ logRecords }) => logRecords)),
      ),
    text: () => bodies.map(({ body }) => body).join('\n'),
  };
}

const valuesOf = (attributes: z.infer<typeof attributesSchema>) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? Number(value.intValue)]));

it('a request is a span of the client’s trace with its tokens, each attempt one inside, and its line a log record; no text goes along', async () => {
  const sink = await collector();
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.url,
    OTEL_BSP_SCHEDULE_DELAY: '100',
    OTEL_BLRP_SCHEDULE_DELAY: '100',
    REQUEST_LOG: 'all',
  };
  const cluster = await openTestCluster({ gateway: { env } });
  const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
  const headers = { traceparent: `00-${traceId}-00f067aa0ba902b7-01`, 'x-request-id': 'asked-by-a-test' };
  const secret = 'words of a prompt';
  const body = { ...chatBody({ tokens: 4 }), messages: [{ role: 'user', content: secret }] };
  const answer = await cluster.ask('/v1/chat/completions', body, { headers });
  await answer.text();
  const [server, attempt] = await eventually('both spans', 60_000, () => {
    const found = sink.spans().filter((span) => span.traceId === traceId);
    const both = [found.find(({ kind }) => kind === 2), found.find(({ kind }) => kind === 3)] as const;
    return both[0] && both[1] ? ([both[0], both[1]] as const) : undefined;
  });
  expect(server).toMatchObject({ name: `chat ${MODEL}`, parentSpanId: '00f067aa0ba902b7' });
  expect(valuesOf(server.attributes)).toMatchObject({
    'gen_ai.operation.name': 'chat',
    'gen_ai.request.model': MODEL,
    'gen_ai.provider.name': 'lab',
    'gen_ai.usage.output_tokens': 4,
    'http.response.status_code': 200,
    'otela.request.id': 'asked-by-a-test',
  });
  expect(attempt.parentSpanId).toBe(server.spanId);
  expect(valuesOf(attempt.attributes)).toMatchObject({
    'http.response.status_code': 200,
    'gen_ai.usage.output_tokens': 4,
  });
  expect(BigInt(server.endTimeUnixNano)).toBeGreaterThanOrEqual(BigInt(attempt.endTimeUnixNano));
  const line = await eventually('its log record', 60_000, () =>
    sink.logs().find(({ attributes }) => valuesOf(attributes).request_id === 'asked-by-a-test'),
  );
  expect(line.eventName).toBe('otela.request');
  const refused = await cluster.ask('/v1/chat/completions', { ...chatBody(), model: 'no/such' });
  await refused.text();
  await eventually('the refusal’s span', 60_000, () =>
    sink.spans().some((span) => valuesOf(span.attributes)['error.type'] === 'model_not_found') ? true : undefined,
  );
  await cluster.agents[0]?.stop();
  await eventually('the node’s end', 60_000, () =>
    sink.logs().some(({ eventName }) => eventName === 'otela.node_left') ? true : undefined,
  );
  expect(sink.text()).not.toContain(secret);
  expect(sink.text()).not.toContain(cluster.key);
});

it('tokens that a node reports before its request is over are the request’s, those of other requests are not', async () => {
  const sink = await collector();
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', sink.url);
  const otlp = new Otlp('test');
  const end = {
    id: 'id',
    at: Date.now(),
    totalMs: 5,
    operation: 'chat',
    endpoint: 'chat/completions',
    model: 'm',
    served: 'm',
    provider: 'lab',
    status: 200,
    error: '',
    traceparent: undefined,
  };
  const used = { model: 'm', cached: 0, reasoning: 0, completion: 2 };
  const steps = ['first', 'last'].map((node) => ({ at: 1, kind: 'attempt' as const, node, outcome: '200' }));
  otlp.usage({ ...used, request: 'a', session: 'first', prompt: 3 });
  otlp.usage({ ...used, request: 'a', session: 'last', prompt: 4 });
  otlp.usage({ ...used, request: 'another', session: 'last', prompt: 9 });
  otlp.request({ ...end, name: 'a', node: 'last', steps });
  // For the other request only a failed attempt has reported: the export waits for the last one.
  otlp.usage({ ...used, request: 'b', session: 'first', prompt: 5 });
  otlp.request({ ...end, name: 'b', node: 'last', steps });
  otlp.usage({ ...used, request: 'b', session: 'last', prompt: 6 });
  await otlp.close();
  const tokens = sink.spans().map(({ attributes }) => valuesOf(attributes)['gen_ai.usage.input_tokens']);
  expect(tokens.sort()).toEqual([3, 4, 4, 5, 6, 6]);
});
