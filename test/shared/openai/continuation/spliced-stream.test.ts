import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SPLICED_TEXT_MAX_CHARS, SplicedStream } from '../../../../shared/openai/continuation/spliced-stream.ts';
import { hear } from '../../../support/streams.ts';
import { bytes, cut, cuts, text } from '../support.ts';
import { type Kind, stream, type Told } from './engines.ts';

const TOKENS = ['Grüezi', ' 🦊', '', ' "quoted"\n\n', ' data: [DONE]', ' 統一', ' end', '\r\n', ' .'];

const kinds: Kind[] = ['chat', 'completions'];

function joined(kind: Kind, wantsUsage = true): SplicedStream {
  return new SplicedStream({ kind, wantsUsage });
}

function pushAll(stream: SplicedStream, pieces: readonly Uint8Array[]): Uint8Array[] {
  return pieces.flatMap((piece) => stream.push(piece));
}

/** A second engine's stream, if the client has `has` of the first one's response. */
function rest(kind: Kind, has: string, more: Partial<Told> = {}): { told: Told; produced: number } {
  let produced = 0;
  while (TOKENS.slice(0, produced).join('') !== has) produced++;
  while (TOKENS[produced] === '') produced++;
  const told = { kind, id: 'second', after: TOKENS.slice(0, produced), tokens: TOKENS.slice(produced), ...more };
  return { told, produced };
}

describe.each(kinds)('%s: a stream cut at any byte', (kind) => {
  it.each(['\n', '\r\n', '\r'])('goes on as if nothing had happened, with %j for a line end', (eol) => {
    const first = stream({ kind, id: 'first', tokens: TOKENS, eol, pings: true });
    const whole = hear(text(first));
    for (let at = 0; at <= first.length; at++) {
      const one = joined(kind);
      const out = one.push(first.slice(0, at));
      expect(hear(text(out)).text, `cut at ${at}`).toBe(one.text);
      if (!one.done && one.finished) out.push(...one.ending(7, one.textEvents));
      else if (!one.done) {
        expect(one.obstacle).toBeUndefined();
        const { told, produced } = rest(kind, one.text);
        one.continueWith(produced);
        out.push(...one.push(stream(told)));
      }
      expect(one.fault).toBeUndefined();
      const heard = hear(text(out));
      expect(heard, `cut at ${at}`).toMatchObject({ text: whole.text, dones: 1, finishes: ['stop'], errors: [] });
      expect(heard.roles).toBe(whole.roles);
      expect(heard.ids.size).toBe(1);
      expect(heard.usages).toHaveLength(1);
      // An event without text is not a visible token.
      expect(heard.usages[0]?.prompt_tokens).toBe(7);
      expect(Math.abs(Number(heard.usages[0]?.completion_tokens) - TOKENS.length)).toBeLessThanOrEqual(1);
      expect(heard.cut).toBe(false);
    }
  });

  it('and in any chunks, any number of times', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(100_000), { maxLength: 4 }), cuts, fc.boolean(), (breaks, pieces, usage) => {
        const one = joined(kind, usage);
        const out: Uint8Array[] = [];
        let said = stream({ kind, id: 'engine-0', tokens: TOKENS, usage });
        for (const [n, at] of breaks.entries()) {
          const broken = said.slice(0, at % (said.length + 1));
          out.push(...pushAll(one, cut(broken, pieces)));
          if (one.done || one.finished) break;
          const { told, produced } = rest(kind, one.text, { id: `engine-${n + 1}`, usage });
          one.continueWith(produced);
          said = stream(told);
        }
        if (!one.done && one.finished) out.push(...one.ending(7, one.textEvents));
        if (!one.done) out.push(...pushAll(one, cut(said, pieces)));
        const heard = hear(text(out));
        expect(heard).toMatchObject({ text: TOKENS.join(''), dones: 1, finishes: ['stop'], errors: [], cut: false });
        expect(heard.ids.size).toBe(1);
        expect(heard.usages).toHaveLength(usage ? 1 : 0);
        expect(heard.roles).toBe(kind === 'chat' ? 1 : 0);
      }),
      { numRuns: 300 },
    );
  });
});

describe.each(kinds)('%s: a stream that does not break', (kind) => {
  it('passes byte by byte as it came, however it is cut', () => {
    const odd = bytes(': hello\n\nevent: x\ndata: {"choices":[{"index":3}]}\n\ndata: not json\n\ndata: [DONE]\n\nmore');
    const tellings = ['\n', '\r\n', '\r'].map((eol) => stream({ kind, id: 'a', tokens: TOKENS, eol, pings: true }));
    fc.assert(
      fc.property(
        fc.constantFrom(...tellings, odd, bytes('\n\n\n'), bytes('data: x\r\n\r\n\r\n')),
        cuts,
        (whole, at) => {
          const one = joined(kind);
          const out = text(pushAll(one, cut(whole, at)));
          // An event that did not end is never emitted; all ended events pass unchanged.
          expect(text(whole).startsWith(out)).toBe(true);
          expect(text(whole).slice(out.length)).not.toMatch(/\n\n|\r\r|\r\n\r\n/);
        },
      ),
    );
  });

  it('passes bytes that are no event stream at all', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), cuts, (whole, at) => {
        const one = joined(kind);
        const out = Buffer.concat(pushAll(one, cut(whole, at)));
        expect(Buffer.from(whole).subarray(0, out.length).equals(out)).toBe(true);
      }),
    );
  });
});

describe('no node continues', () => {
  const chunk = (choice: object, more: object = {}) =>
    bytes(`data: ${JSON.stringify({ id: 'a', choices: [{ index: 0, ...choice }], ...more })}\n\n`);

  it.each([
    ['a call of a tool', { delta: { tool_calls: [{ index: 0 }] } }],
    ['reasoning', { delta: { reasoning_content: 'Hm.' } }],
    ['reasoning under its new name', { delta: { reasoning: 'Hm.' } }],
    ['a refusal', { delta: { refusal: 'No.' } }],
    ['another choice', { index: 1, delta: { content: 'x' } }],
    ['log probabilities', { delta: { content: 'x' }, logprobs: { content: [] } }],
    ['content that is no text', { delta: { content: [{ text: 'x' }] } }],
  ])('after %s, which pass as they came', (_what, choice) => {
    const one = joined('chat');
    const said = chunk(choice);
    expect(text(one.push(said))).toBe(text(said));
    expect(one.obstacle).toBeDefined();
    expect(text(one.push(bytes('anything')))).toBe('anything');
  });

  it('where the text so far ends inside a character', () => {
    for (const half of ['caf\ufffd', 'x\ud83e']) {
      const one = joined('chat');
      one.push(chunk({ delta: { content: half } }));
      expect(one.obstacle).toContain('character');
    }
    const one = joined('chat');
    one.push(chunk({ delta: { content: 'x\ud83e' } }));
    one.push(chunk({ delta: { content: '\udd8a' } }));
    expect(one.obstacle).toBeUndefined();
  });

  it('after an event that is longer than is held, whose bytes all pass', () => {
    const long = chunk({ delta: { content: 'x'.repeat(700_000) } });
    for (const size of [1000, 300_000, long.length]) {
      const one = joined('chat');
      const pieces = cut(
        long,
        Array.from({ length: Math.floor(long.length / size) }, (_, i) => i * size),
      );
      expect(Buffer.concat(pushAll(one, pieces)).equals(long)).toBe(true);
      expect(one.obstacle).toBeDefined();
    }
  });

  it('after more text than is remembered', () => {
    const one = joined('chat');
    const piece = chunk({ delta: { content: 'x'.repeat(100_000) } });
    for (let n = 0; n <= SPLICED_TEXT_MAX_CHARS / 100_000; n++) expect(text(one.push(piece))).toBe(text(piece));
    expect(one.obstacle).toContain('long');
  });

  it('when the engine says that the request is at fault; its own trouble is kept back', () => {
    const refused = bytes('data: {"error":{"message":"too long","code":400}}\n\n');
    const one = joined('chat');
    expect(text(one.push(refused))).toBe(text(refused));
    expect(one.obstacle).toBeDefined();
    for (const code of [500, null, 'InternalServerError']) {
      const ill = joined('chat');
      const said = bytes(
        `data: ${JSON.stringify({ error: { message: 'EngineDeadError', code } })}\n\ndata: [DONE]\n\n`,
      );
      expect(ill.push(said)).toEqual([]);
      expect(ill.fault).toBeDefined();
      expect(text(ill.withheld ?? [])).toContain('EngineDeadError');
      expect(ill.done).toBe(false);
    }
  });
});

describe('an engine that goes on', () => {
  const second = (told: Partial<Told>) => stream({ kind: 'chat', id: 'b', tokens: ['x'], ...told });
  const begun = () => {
    const one = joined('chat');
    const said = stream({ kind: 'chat', id: 'a', tokens: ['one', ' lost'], fingerprint: 'fp-a' });
    one.push(said.slice(0, Buffer.from(said).indexOf(' lost')));
    expect(one.text).toBe('one');
    one.continueWith(1);
    return one;
  };

  it('is heard under the name, model and fingerprint of the first', () => {
    const out = text(begun().push(second({ fingerprint: 'fp-b' })));
    expect(out).not.toContain('"b"');
    expect(out).not.toContain('fp-b');
    expect(
      out.match(/"id":"a","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp-a"/g),
    ).toHaveLength(3);
  });

  it('adds up its usage, and says that it is estimated', () => {
    const [usage] = hear(text(begun().push(second({ after: ['one'] })))).usages;
    expect(usage).toEqual({ prompt_tokens: 7, completion_tokens: 2, total_tokens: 9, otela_estimated: true });
  });

  it('never says that more of the prompt was cached than there is', () => {
    const said = text([second({ after: ['one'] })]);
    const cached = said.replace(
      '"usage":{',
      '"usage":{"prompt_tokens_details":{"cached_tokens":368,"audio_tokens":0},',
    );
    expect(cached).not.toBe(said);
    const [usage] = hear(text(begun().push(bytes(cached)))).usages;
    expect(usage).toMatchObject({ prompt_tokens: 7, prompt_tokens_details: { cached_tokens: 7, audio_tokens: 0 } });
  });

  it.each([
    ['another model', second({ model: 'other' })],
    ['no JSON', bytes('data: {not json\n\n')],
    ['no chunk', bytes('data: 17\n\n')],
    ['two choices', bytes('data: {"choices":[{"index":0},{"index":1}]}\n\n')],
    ['a tool call', bytes('data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}\n\n')],
    ['its own trouble', bytes('data: {"error":{"message":"CUDA","code":500}}\n\n')],
    ['an endless event', bytes(`data: ${'x'.repeat(600_000)}`)],
  ])('with %s is not read on, and another one may follow', (_what, said) => {
    const one = begun();
    const good = bytes('data: {"id":"b","choices":[{"index":0,"delta":{"content":" two"}}]}\n\n');
    const out = one.push(good);
    out.push(...one.push(said), ...one.push(good));
    expect(one.fault).toBeDefined();
    expect(hear(text(out)).text).toBe(' two');
    expect(one.text).toBe('one two');
    one.continueWith(2);
    expect(hear(text(one.push(second({})))).dones).toBe(1);
    expect(one.done).toBe(true);
  });

  it('may not say more after its [DONE]', () => {
    const one = begun();
    const out = text([...one.push(second({})), ...one.push(second({}))]);
    expect(hear(out).dones).toBe(1);
    expect(hear(out).text).toBe('x');
  });
});
