/** Agents open what clients seal, and clients open what agents seal; everything else is refused. */
import fc from 'fast-check';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { KeyRing } from '../../../agent/seal/seal-key-ring.ts';
import { SealOpener } from '../../../agent/seal/seal-opener.ts';
import { AnswerOpener } from '../../../clients/seal/answer-opener.ts';
import { type ClearRequest, type SealedRequest, seal } from '../../../clients/seal/seal-request.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { buildFrame, FRAME } from '../../../shared/seal/response-frames.ts';

const NOW_S = 1_700_000_000;
const CHAT = endpointById(1);
if (CHAT === undefined) throw new Error('no chat endpoint');
const chat = CHAT;

const ring = new KeyRing(() => NOW_S * 1000);
const { kid, publicKey: key, until } = ring.current;
const node = { session: 's', provider: 'eth', mode: 'pinned' as const, kid, key: new Uint8Array(key), until };
let opener: SealOpener;
beforeEach(() => {
  opener = new SealOpener(ring, () => NOW_S * 1000);
});

const clearOf = (body: Uint8Array, more: Partial<ClearRequest> = {}): ClearRequest => ({
  path: chat.path,
  model: 'm',
  stream: true,
  headers: [['content-type', 'application/json']],
  body,
  ...more,
});

function openIt(
  { headers, body }: SealedRequest,
  more: Partial<Parameters<SealOpener['open']>[0]> = {},
  changed: Record<string, string> = {},
) {
  const given = Object.entries({ ...headers, ...changed });
  return opener.open({ headers: given, endpoint: chat, streaming: true, ...more }, body);
}

async function readAll(
  pieces: readonly Uint8Array[],
  sealed: SealedRequest,
): Promise<{ status: number; body: string; notes: number }> {
  const answer = new AnswerOpener(ReadableStream.from(pieces), sealed);
  let [status, body, notes] = [0, '', 0];
  for (;;) {
    const next = await answer.next();
    if (next.kind === 'end') return { status, body, notes };
    if (next.kind === 'head') status = next.head.status;
    if (next.kind === 'data') body += Buffer.from(next.bytes).toString('latin1');
    if (next.kind === 'note') notes++;
  }
}

const bodies = fc.oneof(fc.uint8Array({ maxLength: 300 }), fc.uint8Array({ minLength: 16_300, maxLength: 40_000 }));

describe('a sealed request', () => {
  it('is decrypted unchanged, for any content', async () => {
    await fc.assert(
      fc.asyncProperty(bodies, fc.string(), async (body, model) => {
        const opened = openIt(await seal(clearOf(body, { model }), [node], NOW_S));
        expect(Buffer.compare(opened.body, body)).toBe(0);
        expect([opened.model, opened.headers]).toEqual([model, [['content-type', 'application/json']]]);
      }),
      { numRuns: 40 },
    );
  });

  it('with any bit of its body flipped, or cut anywhere, is refused', async () => {
    const sealed = await seal(clearOf(Buffer.from('{"model":"m"}')), [node], NOW_S);
    for (let at = 0; at < sealed.body.length; at++) {
      const body = sealed.body.slice();
      body[at] = (body[at] ?? 0) ^ (1 << (at % 8));
      expect(() => openIt({ ...sealed, body })).toThrow('this node cannot decrypt it');
      expect(() => openIt({ ...sealed, body: sealed.body.slice(0, at) })).toThrow('this node cannot decrypt it');
    }
  });

  it('under another model, stream flag, path, time or envelope is refused, all with one word', async () => {
    const sealed = await seal(clearOf(Buffer.from('{}')), [node], NOW_S);
    const stamp = sealed.headers['x-otela-seal'] ?? '';
    const to = sealed.headers['x-otela-seal-to'] ?? '';
    const completions = endpointById(2) ?? chat;
    const refused = [
      () => openIt(sealed, {}, { 'x-otela-model': 'other' }),
      () => openIt(sealed, { streaming: false }),
      () => openIt(sealed, { endpoint: completions }),
      () => openIt(sealed, {}, { 'x-otela-resume': '1' }),
      () => openIt(sealed, {}, { 'x-otela-seal': stamp.replace(/until=\d+/, `until=${NOW_S + 900}`) }),
      () => openIt(sealed, {}, { 'x-otela-seal': stamp.replace(/at=\d+/, `at=${NOW_S - 1}`) }),
      () => openIt(sealed, {}, { 'x-otela-seal-to': `${to.slice(0, 40)}${to[40] === 'A' ? 'B' : 'A'}${to.slice(41)}` }),
    ];
    for (const attempt of refused) expect(attempt).toThrow('this node cannot decrypt it');
    expect(openIt(sealed).model).toBe('m');
  });

  it('cannot be given another body under its key, by a node that has the key and a gateway that swaps it', async () => {
    const random = vi.spyOn(globalThis.crypto, 'getRandomValues').mockImplementation((array) => array);
    const [one, other] = await Promise.all(
      ['{"a":1}', '{"b":2}'].map((text) => seal(clearOf(Buffer.from(text)), [node], NOW_S)),
    );
    random.mockRestore();
    if (one === undefined || other === undefined) throw new Error('nothing sealed');
    expect(() => openIt({ ...one, body: other.body })).toThrow('this node cannot decrypt it');
    expect(openIt(other).body.toString()).toBe('{"b":2}');
  });

  it('is answered once, unless no answer came of it', async () => {
    const sealed = await seal(clearOf(Buffer.from('{}')), [node], NOW_S);
    const first = openIt(sealed);
    expect(() => openIt(sealed)).toThrow('this node cannot decrypt it');
    first.unanswered();
    expect(openIt(sealed).model).toBe('m');
  });

  it('from the future, from the past, or good for too long is refused', async () => {
    for (const at of [NOW_S + 121, NOW_S - 601]) {
      const sealed = await seal(clearOf(Buffer.from('{}')), [node], at);
      expect(() => openIt(sealed)).toThrow('this node cannot decrypt it');
    }
    // A client that accepts responses for longer than nodes remember requests, so that a stolen request could be
    // replayed.
    vi.resetModules();
    vi.doMock('../../../shared/seal/hpke-suite.ts', async (actual) => ({
      ...(await actual<object>()),
      SEALED_LIFE_MAX_S: 1_201,
    }));
    const patient = await import('../../../clients/seal/seal-request.ts');
    vi.doUnmock('../../../shared/seal/hpke-suite.ts');
    const long = await patient.seal({ ...clearOf(Buffer.from('{}')), resume: true }, [node], NOW_S);
    expect(long.headers['x-otela-seal']).toContain(`until=${NOW_S + 1_201}`);
    expect(() => openIt(long)).toThrow('this node cannot decrypt it');
    const late = await seal(clearOf(Buffer.from('{}')), [node], NOW_S + 119);
    expect(openIt(late).model).toBe('m');
  });

  it('tells by its size less than the size of its prompt', async () => {
    const sizes = new Set<number>();
    for (let bytes = 2_000; bytes < 2_100; bytes++)
      sizes.add((await seal(clearOf(new Uint8Array(bytes)), [node], NOW_S)).body.length);
    expect(sizes.size).toBeLessThanOrEqual(2);
  });
});

describe('a sealed answer', () => {
  async function answered(pieces: readonly string[]) {
    const sealed = await seal(clearOf(Buffer.from('{}')), [node], NOW_S);
    const { sealer } = openIt(sealed);
    const outside = sealer.head(
      200,
      [
        ['content-type', 'text/event-stream'],
        ['x-secret', 'engine'],
      ],
      true,
    );
    const frames = pieces.map((piece) => sealer.chunk(Buffer.from(piece, 'latin1')));
    return { sealed, outside, frames: [...frames, sealer.final()] };
  }

  it('is read as it was, wherever it was cut into pieces', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.string({ unit: 'binary-ascii', maxLength: 400 }), { maxLength: 5 }),
        fc.integer({ min: 1, max: 500 }),
        async (pieces, size) => {
          const { sealed, outside, frames } = await answered(pieces);
          expect(outside).toEqual([['content-type', 'application/otela-sealed; stream=1']]);
          const whole = Buffer.concat(frames);
          const cut = Array.from({ length: Math.ceil(whole.length / size) }, (_, n) =>
            whole.subarray(n * size, (n + 1) * size),
          );
          expect(await readAll(cut, sealed)).toEqual({ status: 200, body: pieces.join(''), notes: 0 });
        },
      ),
      { numRuns: 40 },
    );
  });

  it('goes on under its own key where the node’s is followed by another one meanwhile', async () => {
    let now = NOW_S * 1000;
    const turning = new KeyRing(() => now);
    const { kid, publicKey, until } = turning.current;
    const sealed = await seal(
      clearOf(Buffer.from('{}')),
      [{ ...node, kid, key: new Uint8Array(publicKey), until }],
      NOW_S,
    );
    const headers = Object.entries(sealed.headers);
    const { sealer } = new SealOpener(turning, () => now).open(
      { headers, endpoint: chat, streaming: true },
      sealed.body,
    );
    sealer.head(200, [], true);
    const before = sealer.chunk(Buffer.from('before, '));
    now += 3 * 24 * 3_600_000;
    expect([turning.rotate(), turning.find(kid)]).toEqual([true, undefined]);
    const frames = [before, sealer.chunk(Buffer.from('after')), sealer.final()];
    expect(await readAll(frames, sealed)).toEqual({ status: 200, body: 'before, after', notes: 0 });
  });

  it('lets the gateway speak between its frames', async () => {
    const { sealed, frames } = await answered(['a', 'b', 'c']);
    const note = buildFrame(FRAME.note, Buffer.from('{"error":{}}'));
    const mixed = frames.flatMap((one) => [buildFrame(FRAME.note), one]);
    expect(await readAll(mixed, sealed)).toEqual({ status: 200, body: 'abc', notes: 0 });
    expect(await readAll([note, ...frames], sealed)).toEqual({ status: 200, body: 'abc', notes: 1 });
  });

  it('cut, reordered, repeated, mixed with another one’s, or with any bit flipped is an error and never other text', async () => {
    const { sealed, frames } = await answered(['first', 'second', 'third']);
    const other = await answered(['first', 'second', 'third']);
    const [one = Buffer.alloc(0), two = Buffer.alloc(0), three = Buffer.alloc(0), end = Buffer.alloc(0)] = frames;
    const wrong = [
      [one, two, three],
      [two, one, three, end],
      [one, three, end],
      [one, two, two, three, end],
      [one, end],
      [end],
      [],
      other.frames,
      [one, ...other.frames.slice(1)],
      [one, one, two, three, end],
    ];
    for (const pieces of wrong) await expect(readAll(pieces, sealed)).rejects.toThrow();
    const whole = Buffer.concat(frames);
    for (let at = 0; at < whole.length; at++) {
      const flipped = Buffer.from(whole);
      flipped[at] = (flipped[at] ?? 0) ^ (1 << (at % 8));
      await expect(readAll([flipped], sealed)).rejects.toThrow();
      await expect(readAll([whole.subarray(0, at)], sealed)).rejects.toThrow();
    }
  });
});
