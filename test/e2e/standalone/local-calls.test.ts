/** Calls of tunnel objects in one process. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { CallResult } from '../../../gateway/tunnel/call/call-encoding.ts';
import { LocalCall, LocalTunnel, localTunnelOf } from '../../../gateway/tunnel/call/local-calls.ts';
import type { AttemptRequest } from '../../../shared/attempts/attempt-request.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';

const ANSWER: CallResult = { kind: 'failure', code: 'failed', message: 'the answer' };
const call = () => new LocalCall({ requestId: 'r', attempt: 1 } as AttemptRequest, new Uint8Array([1, 2, 3]));
const neverAsked = () => Promise.reject(new Error('asked'));

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('hands a call over in the same turn, as it is, and its answer back', async () => {
  const taken: LocalCall[] = [];
  const callee = new LocalTunnel('one', (asked) => taken.push(asked));
  const asked = call();
  const answer = callee.ask(asked, neverAsked);
  expect(taken).toEqual([asked]);
  asked.answer(ANSWER);
  expect(await answer).toBe(ANSWER);
  callee.close();
});

it('is known by its session until it is closed; the newest of a session counts', () => {
  const first = new LocalTunnel('two', () => {});
  const second = new LocalTunnel('two', () => {});
  first.close();
  expect(localTunnelOf('two')).toBe(second);
  second.close();
  expect(localTunnelOf('two')).toBeUndefined();
});

it('a call of an object that was reset rejects within two seconds, one that the object works at goes on', async () => {
  const callee = new LocalTunnel('three', () => {});
  const [lost, held] = [call(), call()];
  const outcome = callee.ask(lost, async () => false).catch((error: Error) => error.message);
  const answer = callee.ask(held, async () => true);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(await outcome).toContain('was reset');
  await vi.advanceTimersByTimeAsync(60_000);
  held.answer(ANSWER);
  expect(await answer).toBe(ANSWER);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(vi.getTimerCount()).toBe(0);
});

it('what the object throws, and a client that leaves, reject the call alone', async () => {
  const failing = new LocalTunnel('four', () => {
    throw new Error('broken');
  });
  await expect(failing.ask(call(), neverAsked)).rejects.toThrow('broken');
  const silent = new LocalTunnel('five', () => {});
  const left = call();
  const answer = silent.ask(left, neverAsked);
  left.withdraw();
  await expect(answer).rejects.toThrow('the client disconnected');
});

it('with 4,096 calls waiting the next goes by the stub', async () => {
  const callee = new LocalTunnel('six', () => {});
  for (let n = 0; n < 4_096; n++) neverRejects(callee.ask(call(), async () => true));
  expect(await callee.ask(call(), neverAsked)).toEqual({ kind: 'fetch' });
});
