/**
 * A sealed stream that continues at another candidate: what that node reads of it, and what its client accepts and
 * refuses.
 */
import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { AnswerSealer } from '../../../agent/seal/answer-sealer.ts';
import { KeyRing } from '../../../agent/seal/seal-key-ring.ts';
import { SealOpener } from '../../../agent/seal/seal-opener.ts';
import { AnswerOpener } from '../../../clients/seal/answer-opener.ts';
import type { SealNode } from '../../../clients/seal/pinned-candidates.ts';
import { type SealedRequest, seal } from '../../../clients/seal/seal-request.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { CONTINUES_HEADER } from '../../../shared/seal/hpke-suite.ts';
import { buildFrame, FRAME, FrameSplitter } from '../../../shared/seal/response-frames.ts';

const NOW_S = 1_700_000_000;
const CHAT = endpointById(1);
if (CHAT === undefined) throw new Error('no chat endpoint');
const endpoint = CHAT;
const BODY = Buffer.from('{"model":"m","stream":true,"messages":[]}');

class Candidate {
  readonly #ring = new KeyRing(() => NOW_S * 1000);
  readonly opener = new SealOpener(this.#ring, () => NOW_S * 1000);
  readonly node: SealNode;

  constructor(session: string) {
    const { kid, publicKey, until } = this.#ring.current;
    this.node = { session, provider: 'eth', mode: 'pinned', kid, key: new Uint8Array(publicKey), until };
  }

  /** `sent`: frames of the response until now. */
  opens({ headers, body }: SealedRequest, sent: readonly Uint8Array[] = []) {
    const own = String(headers['x-otela-seal-to']).split(', ');
    const to = own.find((one) => one.startsWith(this.node.kid.slice(0, 10))) ?? '';
    const given: [string, string][] = Object.entries({ ...headers, 'x-otela-seal-to': to });
    if (sent.length > 0) given.push([CONTINUES_HEADER, String(body.length)]);
    return this.opener.open({ headers: given, endpoint, streaming: true }, Buffer.concat([body, ...sent]));
  }

  /** Frames of a response: SEGMENT, a chunk for each piece, and FINAL if `whole`. */
  answers(
    request: SealedRequest,
    pieces: readonly string[],
    { sent = [], whole = false }: Answering = {},
  ): Uint8Array[] {
    const { sealer } = this.opens(request, sent);
    sealer.head(200, [['content-type', 'text/event-stream']], true);
    const bytes = pieces.map((piece) => sealer.chunk(Buffer.from(piece)));
    if (whole) bytes.push(sealer.final());
    return new FrameSplitter().push(Buffer.concat(bytes)).map(({ type, payload }) => buildFrame(type, payload));
  }
}

interface Answering {
  sent?: readonly Uint8Array[];
  whole?: boolean;
}

async function sealedTo(candidates: readonly Candidate[], resume = true): Promise<SealedRequest> {
  const clear = { path: endpoint.path, model: 'm', stream: true, headers: [], body: BODY, resume };
  return seal(
    clear,
    candidates.map(({ node }) => node),
    NOW_S,
  );
}

async function read(frames: readonly Uint8Array[], request: SealedRequest) {
  const opener = new AnswerOpener(ReadableStream.from(frames), request);
  let text = '';
  const nodes: string[] = [];
  for (;;) {
    const next = await opener.next();
    if (next.kind === 'end') return { text, nodes };
    if (next.kind === 'data') text += Buffer.from(next.bytes).toString();
    if (next.kind === 'head' || next.kind === 'continued') nodes.push(next.node.session);
  }
}

const [a, b, c] = [new Candidate('a'), new Candidate('b'), new Candidate('c')];
const all = [a, b, c];
const refused = expect.objectContaining({ code: 'not_opened' });

describe('a stream that goes on at another candidate', () => {
  it('is one text to its client, told which nodes it is of, also where it goes on twice', async () => {
    const request = await sealedTo(all);
    const first = a.answers(request, ['one ', 'two ']);
    const second = b.answers(request, ['three '], { sent: first });
    const third = c.answers(request, ['four'], { sent: [...first, ...second], whole: true });
    const whole = await read([...first, ...second, ...third], request);
    expect(whole).toEqual({ text: 'one two three four', nodes: ['a', 'b', 'c'] });
  });

  it('shows the next candidate what the client has, and no other node', async () => {
    const request = await sealedTo([a, b]);
    const first = a.answers(request, ['one ', 'two ']);
    const { sent } = b.opens(request, first);
    expect(Buffer.concat(sent?.pieces ?? []).toString()).toBe('one two ');
    expect(sent?.end.chunks).toBe(2);
    expect(() => c.opens(request, first)).toThrow('this node cannot decrypt it');
  });

  it('is taken up by no candidate where its frames are not an unbroken beginning', async () => {
    const request = await sealedTo(all);
    const [segment = Buffer.of(), one = Buffer.of(), two = Buffer.of()] = a.answers(request, ['one ', 'two ']);
    const second = b.answers(request, ['three '], { sent: [segment, one, two] });
    const other = a.answers(await sealedTo(all), ['one ']);
    const flipped = Buffer.from(two);
    flipped[40] = (flipped[40] ?? 0) ^ 1;
    const broken: Uint8Array[][] = [
      [segment],
      [one, two],
      [segment, two],
      [segment, two, one],
      [segment, one, one],
      [segment, one, flipped],
      [segment, one, two.subarray(0, -1)],
      [segment, one, ...second],
      [...second],
      other,
      [segment, one, two, buildFrame(FRAME.note)],
      [segment, one, two, segment],
    ];
    for (const sent of broken) expect(() => c.opens(request, sent)).toThrow('this node cannot decrypt it');
    // None of these used up the request, which now opens correctly.
    expect(c.opens(request, [segment, one, two, ...second]).sent?.end.chunks).toBe(1);
  });

  it('that lost pieces on its way to the next candidate is refused by its client', async () => {
    const request = await sealedTo(all);
    const first = a.answers(request, ['one ', 'two ']);
    const second = b.answers(request, ['two '], { sent: first.slice(0, -1), whole: true });
    await expect(read([...first, ...second], request)).rejects.toEqual(refused);
    // A client that got exactly what the node resumed from accepts it.
    expect((await read([...first.slice(0, -1), ...second], request)).text).toBe('one two ');
  });

  it('whose parts are left out, repeated, exchanged or not asked for is refused', async () => {
    const request = await sealedTo(all);
    const first = a.answers(request, ['one ', 'two ']);
    const second = b.answers(request, ['three '], { sent: first });
    const third = c.answers(request, ['four'], { sent: [...first, ...second], whole: true });
    const forged: Uint8Array[][] = [
      [...second, ...third],
      [...first, ...third],
      [...first, ...second, ...second, ...third],
      [...first, ...first, ...second, ...third],
      [...second, ...first, ...third],
      [...first, ...second.slice(1), ...third],
    ];
    for (const frames of forged) await expect(read(frames, request)).rejects.toEqual(refused);
    const plain = await sealedTo(all, false);
    const one = a.answers(plain, ['one ']);
    const again = b.answers(plain, ['one two'], { whole: true });
    await expect(read([...one, ...again], plain)).rejects.toEqual(refused);
  });

  it('is not taken from a node that goes on unasked', async () => {
    const plain = await sealedTo(all, false);
    const first = a.answers(plain, ['one ']);
    const segment = Buffer.from(first[0] ?? [])
      .subarray(-32)
      .toString('base64url');
    const { salt, secret } = plain.secrets.get(b.node.kid) ?? { salt: Buffer.of(), secret: Buffer.of() };
    const kid = Buffer.from(b.node.kid, 'base64url');
    const sealer = new AnswerSealer({ kid, salt, secret }, { segment, chunks: 1 });
    sealer.head(200, [], true);
    const more = Buffer.concat([sealer.chunk(Buffer.from('two')), sealer.final()]);
    await expect(read([...first, more], plain)).rejects.toEqual(refused);
  });

  it('begins anew at no node: two whole answers are not one', async () => {
    const request = await sealedTo(all);
    const first = a.answers(request, ['one ']);
    const fresh = b.answers(request, ['one two'], { whole: true });
    await expect(read([...first, ...fresh], request)).rejects.toEqual(refused);
  });

  it('is opened under the flag alone that its client sealed', async () => {
    const request = await sealedTo(all);
    const { 'x-otela-resume': _, ...headers } = request.headers;
    expect(() => a.opens({ ...request, headers })).toThrow('this node cannot decrypt it');
    const plain = await sealedTo(all, false);
    const asked = { ...plain, headers: { ...plain.headers, 'x-otela-resume': '1' } };
    expect(() => a.opens(asked)).toThrow('this node cannot decrypt it');
    const sent = a.answers(plain, ['one ']);
    expect(() => b.opens(plain, sent)).toThrow('this node cannot decrypt it');
  });

  it('is continued by no node a second time, nor behind more than gateways keep: a gateway that repeats can make no endless stream', async () => {
    const request = await sealedTo([a, b]);
    const first = a.answers(request, ['one ', 'two ']);
    const second = b.answers(request, ['three '], { sent: first });
    const { salt, secret } = request.secrets.get(a.node.kid) ?? { salt: Buffer.of(), secret: Buffer.of() };
    const segment = Buffer.from(second[0] ?? [])
      .subarray(-32)
      .toString('base64url');
    const again = new AnswerSealer({ kid: Buffer.from(a.node.kid, 'base64url'), salt, secret }, { segment, chunks: 1 });
    again.head(200, [], true);
    const third = Buffer.concat([again.chunk(Buffer.from('four')), again.final()]);
    await expect(read([...first, ...second, third], request)).rejects.toEqual(refused);
  });

  it.each([
    [255, true],
    [256, false],
  ])('behind %i chunks of 16 KiB is taken: %s', async (chunks, taken) => {
    const request = await sealedTo([a, b]);
    const first = a.answers(request, ['x', ...Array<string>(chunks).fill('x'.repeat(16_366))]);
    if (!taken) expect(() => b.opens(request, first)).toThrow('this node cannot decrypt it');
    // Even if gateway and node ignore every bound, the client does not.
    const { salt, secret } = request.secrets.get(b.node.kid) ?? { salt: Buffer.of(), secret: Buffer.of() };
    const segment = Buffer.from(first[0] ?? [])
      .subarray(-32)
      .toString('base64url');
    const sealer = new AnswerSealer(
      { kid: Buffer.from(b.node.kid, 'base64url'), salt, secret },
      { segment, chunks: chunks + 1 },
    );
    sealer.head(200, [], true);
    const reading = read([...first, Buffer.concat([sealer.chunk(Buffer.from('end')), sealer.final()])], request);
    if (taken) expect((await reading).text.length).toBe(1 + chunks * 16_366 + 3);
    else await expect(reading).rejects.toEqual(refused);
  });

  it('that was answered is refused before its beginning is opened', async () => {
    const request = await sealedTo([a, b]);
    const sent = a.answers(request, Array<string>(8_000).fill('x'.repeat(200)));
    const cpu = (work: () => void) => {
      const from = process.cpuUsage();
      work();
      const { user, system } = process.cpuUsage(from);
      return user + system;
    };
    const opening = cpu(() => b.opens(request, sent));
    const refusing = cpu(() => expect(() => b.opens(request, sent)).toThrow('this node cannot decrypt it'));
    expect(refusing).toBeLessThan(opening / 2);
  });

  it('with a continuation of any length that is no frame is refused', async () => {
    const request = await sealedTo(all);
    for (const size of [1, 2, 40, 5_000]) expect(() => a.opens(request, [randomBytes(size)])).toThrow();
  });
});
