import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { AttemptRequest, CallResult } from '../../../gateway/tunnel/attempt.ts';
import { Letter, Mailbox, mailboxOf } from '../../../gateway/tunnel/mailbox.ts';

const ANSWER: CallResult = { kind: 'failure', code: 'failed', message: 'the answer' };
const BODY = new Uint8Array([1, 2, 3]);

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

let sessions = 0;

function open(): AttemptRequest {
  return { requestId: 'r', attempt: 1 } as AttemptRequest;
}

/** A box with an object that keeps what it takes. */
function served() {
  const session = `session-${++sessions}`;
  const taken: Letter[] = [];
  const box = new Mailbox(session);
  const over = box.serve((letter) => taken.push(letter));
  return { session, box, taken, over };
}

const nobodyAsks = () => Promise.reject(new Error('asked'));

describe('a mailbox', () => {
  test('hands a letter over as it is, and its answer back', async () => {
    const { box, taken } = served();
    const letter = new Letter(open(), BODY);
    const posted = box.post(letter, nobodyAsks);
    await vi.advanceTimersByTimeAsync(0);
    expect(taken).toEqual([letter]);
    letter.answer(ANSWER);
    expect(await posted).toBe(ANSWER);
  });

  test('takes in one turn what came in one, in its order, and goes on taking', async () => {
    const { box, taken } = served();
    const letters = [new Letter(open(), BODY), new Letter(open(), BODY), new Letter(open(), BODY)];
    for (const letter of letters.slice(0, 2)) void box.post(letter, nobodyAsks);
    await vi.advanceTimersByTimeAsync(0);
    expect(taken).toEqual(letters.slice(0, 2));
    for (const letter of letters.slice(2)) void box.post(letter, nobodyAsks);
    await vi.advanceTimersByTimeAsync(0);
    expect(taken).toEqual(letters);
  });

  test('is known by its session while it is open; the newest of a session counts', async () => {
    const { session, box, over } = served();
    expect(mailboxOf(session)).toBe(box);
    const next = new Mailbox(session);
    void next.serve(() => {});
    expect(mailboxOf(session)).toBe(next);
    box.close();
    await over;
    expect(mailboxOf(session)).toBe(next);
    next.close();
    expect(mailboxOf(session)).toBeUndefined();
  });

  test('lets a letter that nobody took go the other way when it closes, or when a second has passed', async () => {
    const { box, over } = served();
    const posted = box.post(new Letter(open(), BODY), nobodyAsks);
    box.close();
    expect(await posted).toEqual({ kind: 'fetch' });
    await over;
    const dead = new Mailbox('dead');
    const late = new Letter(open(), BODY);
    const waiting = dead.post(late, nobodyAsks);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await waiting).toEqual({ kind: 'fetch' });
    expect(late.take()).toBe(false);
  });

  test('waits for a letter that the object holds, and rejects where it holds it no more', async () => {
    const { box } = served();
    const letter = new Letter(open(), BODY);
    const held = [true, true, false];
    const posted = box.post(letter, async () => held.shift() ?? false);
    const rejected = expect(posted).rejects.toThrow('the object that had it is gone');
    await vi.advanceTimersByTimeAsync(2_999);
    expect(held).toEqual([false]);
    await vi.advanceTimersByTimeAsync(1);
    await rejected;
    letter.answer(ANSWER); // too late, and nothing throws
  });

  test('an object that cannot be asked is gone', async () => {
    const { box } = served();
    const rejected = expect(box.post(new Letter(open(), BODY), nobodyAsks)).rejects.toThrow('gone');
    await vi.advanceTimersByTimeAsync(1_000);
    await rejected;
  });

  test('an answer that crosses the question counts', async () => {
    const { box } = served();
    const letter = new Letter(open(), BODY);
    const posted = box.post(letter, async () => {
      letter.answer(ANSWER);
      return false;
    });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await posted).toBe(ANSWER);
  });

  test('a letter that was withdrawn is not taken, and whoever posted it goes on at once, without its answer', async () => {
    const { box, taken } = served();
    const early = new Letter(open(), BODY);
    const first = expect(box.post(early, nobodyAsks)).rejects.toThrow('the client left');
    expect(early.withdraw()).toBe(false);
    const late = new Letter(open(), BODY);
    const second = expect(box.post(late, nobodyAsks)).rejects.toThrow('the client left');
    await vi.advanceTimersByTimeAsync(0);
    expect(taken).toEqual([late]);
    expect(late.withdraw()).toBe(true);
    late.answer(ANSWER);
    await Promise.all([first, second]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('goes on after an object that fails at a letter', async () => {
    const taken: Letter[] = [];
    const box = new Mailbox('failing');
    void box.serve((letter) => {
      taken.push(letter);
      if (taken.length === 1) throw new Error('no room on the disk');
      letter.answer(ANSWER);
    });
    const first = expect(box.post(new Letter(open(), BODY), nobodyAsks)).rejects.toThrow('gone');
    expect(await box.post(new Letter(open(), BODY), nobodyAsks)).toBe(ANSWER);
    await first;
    expect(taken).toHaveLength(2);
  });

  test('keeps no more than its bound', async () => {
    const box = new Mailbox('stuck');
    for (let n = 0; n < 4_096; n++) void box.post(new Letter(open(), BODY), nobodyAsks);
    expect(await box.post(new Letter(open(), BODY), nobodyAsks)).toEqual({ kind: 'fetch' });
    box.close();
  });
});
