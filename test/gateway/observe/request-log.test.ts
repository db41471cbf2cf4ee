import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { CLIENTS_LEFT, QUEUE_WAIT, REGION_SERVICE } from '../../../gateway/observe/metric-families.ts';
import { metricsReporter, RequestLog } from '../../../gateway/observe/request-log.ts';
import { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';

/** At the inlet a request's work continues after its client disconnected, because the runtime ends nothing there. */
test('a wait in a queue ends once, though the queue answers as its client leaves', () => {
  const client = new AbortController();
  const request = new Request('http://gateway/v1/chat/completions', { method: 'POST' });
  const seen = { clientRequestId: 'r', name: 'r', known: true, startedAt: Date.now(), model: 'note/model' };
  const log = new RequestLog(
    seen,
    { header: (name) => request.headers.get(name) },
    new ClientDisconnect(client.signal),
    {
      env,
      ctx: { waitUntil: () => {} },
    },
  );
  metricsReporter.counts.take();
  const waited = log.queueEntered();
  client.abort();
  waited('turn');
  log.refused(new Error('no node was asked'));
  const counted = metricsReporter.counts.take();
  expect(counted[QUEUE_WAIT.name]).toEqual([expect.objectContaining({ key: expect.stringContaining('left') })]);
  expect(counted[CLIENTS_LEFT.name]).toEqual([expect.objectContaining({ value: 1 })]);
});

test('a failure of the gateway itself is told by its place, without its message', () => {
  const seen = { clientRequestId: 'r', name: 'r', known: true, startedAt: Date.now(), model: 'note/model' };
  const context = { env, ctx: { waitUntil: () => {} } };
  const log = new RequestLog(seen, { header: () => null }, new ClientDisconnect(new AbortController().signal), context);
  log.refused(new TypeError('unexpected "a word of a prompt"'));
  expect(log.failedAt).toMatch(/^TypeError at .*request-log\.test/);
  expect(log.failedAt).not.toContain('prompt');
});

test.each([
  ['was answered', 200, (log: RequestLog) => log.responseEnded(), true],
  ['was refused by the engine', 400, (log: RequestLog) => log.responseEnded(), false],
  ['broke off', 200, (log: RequestLog) => log.responseBroke('stall', 'upstream_error'), false],
  ['was given up by its client', 200, (log: RequestLog) => log.clientDisconnected(), false],
])('the time of a request that %s tells what an answer takes: %i', (_, status, end, counts) => {
  const seen = { clientRequestId: 'r', name: 'r', known: true, startedAt: Date.now(), model: 'm' };
  const context = { env, ctx: { waitUntil: () => {} } };
  const log = new RequestLog(seen, { header: () => null }, new ClientDisconnect(new AbortController().signal), context);
  metricsReporter.counts.take();
  log.attempt(status, 's', { region: 'near', model: 'm', forwardMs: 1, engineMs: 5 });
  log.responseStarted(status, { node: { session: 's', provider: 'lab' }, model: 'm' });
  end(log);
  expect(metricsReporter.counts.take()[REGION_SERVICE.name] !== undefined).toBe(counts);
});
