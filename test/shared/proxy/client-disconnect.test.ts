import { expect, test } from 'vitest';
import { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';

test('all parts of a request hear of its client’s leaving, also when one of them ends the request by it', () => {
  const client = new AbortController();
  const leaving = new ClientDisconnect(client.signal);
  const heard: string[] = [];
  leaving.on(() => {
    heard.push('first');
    leaving.over();
  });
  leaving.on(() => heard.push('second'));
  expect(leaving.left).toBe(false);
  client.abort();
  expect(heard).toEqual(['first', 'second']);
  expect(leaving.left).toBe(true);
});

test('a request that is over leaves nothing at the runtime', () => {
  const listeners = new Set<() => void>();
  const leaving = new ClientDisconnect({
    aborted: false,
    addEventListener: (_, call) => listeners.add(call),
    removeEventListener: (_, call) => listeners.delete(call),
  });
  leaving.on(() => {});
  leaving.on(() => {});
  expect(listeners.size).toBe(1);
  leaving.over();
  leaving.over();
  expect(listeners.size).toBe(0);
});

test('who sees the client leave says so to all parts, also where no signal does', () => {
  const leaving = new ClientDisconnect();
  let heard = 0;
  leaving.on(() => heard++);
  expect(leaving.left).toBe(false);
  leaving.leave();
  expect(heard).toBe(1);
  leaving.over();
  leaving.leave();
  expect(heard).toBe(1);
  expect(leaving.left).toBe(true);
});

test('a part that begins behind its client’s leaving hears of it at once', () => {
  const client = new AbortController();
  client.abort();
  const leaving = new ClientDisconnect(client.signal);
  let heard = 0;
  leaving.on(() => heard++);
  expect(heard).toBe(1);
});
