import { expect, test } from 'vitest';
import { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';

test('all parts of a request hear of its client’s disconnect, also when one of them ends the request by it', () => {
  const runtime = new AbortController();
  const client = new ClientDisconnect(runtime.signal);
  const heard: string[] = [];
  client.on(() => {
    heard.push('first');
    client.over();
  });
  client.on(() => heard.push('second'));
  expect(client.disconnected).toBe(false);
  runtime.abort();
  expect(heard).toEqual(['first', 'second']);
  expect(client.disconnected).toBe(true);
});

test('a request that is over leaves nothing at the runtime', () => {
  const listeners = new Set<() => void>();
  const client = new ClientDisconnect({
    aborted: false,
    addEventListener: (_, call) => listeners.add(call),
    removeEventListener: (_, call) => listeners.delete(call),
  });
  client.on(() => {});
  client.on(() => {});
  expect(listeners.size).toBe(1);
  client.over();
  client.over();
  expect(listeners.size).toBe(0);
});

test('a disconnected client is reported to all parts, even without a signal', () => {
  const client = new ClientDisconnect();
  let heard = 0;
  client.on(() => heard++);
  expect(client.disconnected).toBe(false);
  client.leave();
  expect(heard).toBe(1);
  client.over();
  client.leave();
  expect(heard).toBe(1);
  expect(client.disconnected).toBe(true);
});

test('a part that begins behind its client’s disconnect hears of it at once', () => {
  const runtime = new AbortController();
  runtime.abort();
  const client = new ClientDisconnect(runtime.signal);
  let heard = 0;
  client.on(() => heard++);
  expect(heard).toBe(1);
});
