import { setImmediate } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { ResponseBody } from '../../../shared/attempts/response-body.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';

let over: boolean[];
let body: ResponseBody;
beforeEach(() => {
  over = [];
  body = new ResponseBody(
    () => {},
    (cancelled) => over.push(cancelled),
    () => {},
  );
});

const piece = Uint8Array.of(1, 2, 3);

describe('an answer that breaks off', () => {
  it('while its reader has the last piece in its hands: the reader is told when it asks for more', async () => {
    const reader = body.open().getReader();
    const reading = reader.read();
    await setImmediate();
    body.push(piece);
    expect(body.breakOff('lost')).toBe(true);
    expect((await reading).value).toEqual(piece);
    expect(over).toEqual([]);
    await expect(reader.read()).rejects.toThrow('lost');
    expect(over).toEqual([false]);
  });

  it('while a piece waits: the reader gets that first', async () => {
    const reader = body.open().getReader();
    body.push(piece);
    expect(body.breakOff('lost')).toBe(true);
    expect((await reader.read()).value).toEqual(piece);
    await expect(reader.read()).rejects.toThrow('lost');
    expect(over).toEqual([false]);
  });

  it('before its reader came, behind what another had: the reader is told, and it is over', async () => {
    let room = true;
    body.pipeTo({
      get wantsData() {
        return room;
      },
      take: () => {
        room = false;
      },
      end: () => {},
      fail: () => {},
    });
    body.push(piece);
    expect(body.breakOff('lost')).toBe(true);
    await expect(body.open().getReader().read()).rejects.toThrow('lost');
    expect(over).toEqual([false]);
  });

  it('while its reader waits, or before there is one: there is nothing to wait for', async () => {
    expect(body.breakOff('lost')).toBe(false);
    neverRejects(body.open().getReader().read());
    await setImmediate();
    expect(body.breakOff('lost')).toBe(false);
  });
});
