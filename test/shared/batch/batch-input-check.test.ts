import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  CHUNK_BYTES,
  CHUNK_LINES,
  ERRORS_MAX,
  InputCheck,
  LINE_MAX_BYTES,
  LINE_REQUIREMENTS_MAX,
  LINES_MAX,
} from '../../../shared/batch/batch-input-check.ts';
import type { BatchEndpoint } from '../../../shared/batch/batch-line.ts';
import { FUNCTIONS_ENDPOINT } from '../../../shared/batch/function-context.ts';
import { LineSplitter } from '../../../shared/batch/line-splitter.ts';

const ENDPOINT = '/v1/chat/completions';
const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };
const line = (id: string, change: Record<string, unknown> = {}) =>
  JSON.stringify({ custom_id: id, method: 'POST', url: ENDPOINT, body, ...change });
function check(text: string | Uint8Array, options: Partial<ConstructorParameters<typeof InputCheck>[0]> = {}) {
  const input = new InputCheck({ endpoint: ENDPOINT, ...options });
  input.push(typeof text === 'string' ? new TextEncoder().encode(text) : text);
  return input.end();
}
const deep = line('a', { body: { ...body, messages: [0] } }).replace('[0]', `${'['.repeat(9_000)}${']'.repeat(9_000)}`);
const codes = (text: string, options = {}) =>
  check(text, options).errors.map(({ code, param, line: at }) => [code, param, at]);

describe('the check of an input file', () => {
  it('accepts a file with and without a last line end, CRLF, blank lines and a byte order mark', () => {
    for (const text of [
      `${line('a')}\n${line('b')}`,
      `\ufeff${line('a')}\r\n\r\n${line('b')}\r\n`,
      `\n${line('a')}\n \t\n${line('b')}\n\n`,
    ]) {
      expect(check(text)).toMatchObject({ lines: 2, model: 'm', errors: [] });
    }
  });

  it.each([
    ['a line that is no JSON', `${line('a')}\nnope\n`, [['invalid_json_line', null, 2]]],
    ['a line that is no object', '[]', [['invalid_json_line', null, 1]]],
    ['invalid UTF-8 in place of JSON', '{"a": "\\ud800', [['invalid_json_line', null, 1]]],
    [
      'missing fields, each by itself',
      '{"custom_id":"a"}',
      [
        ['missing_required_parameter', 'method', 1],
        ['missing_required_parameter', 'url', 1],
        ['missing_required_parameter', 'body', 1],
      ],
    ],
    ['another url', line('a', { url: '/v1/embeddings' }), [['invalid_url', 'url', 1]]],
    ['another method', line('a', { method: 'GET' }), [['invalid_method', 'method', 1]]],
    ['a stream', line('a', { body: { ...body, stream: true } }), [['streaming_unsupported', 'body.stream', 1]]],
    [
      'a stream as engines read it',
      line('a', { body: { ...body, stream: 'true' } }),
      [['streaming_unsupported', 'body.stream', 1]],
    ],
    ['a model in another case', line('a', { body: { ...body, Model: 'n' } }), [['invalid_request', 'body.Model', 1]]],
    [
      'trusted providers that are no text',
      line('a', { body: { ...body, metadata: { otela_trusted_providers: ['eth'] } } }),
      [['invalid_request', 'body.metadata.otela_trusted_providers', 1]],
    ],
    ['no model', line('a', { body: { messages: [] } }), [['invalid_request', 'body.model', 1]]],
    ['no messages', line('a', { body: { model: 'm' } }), [['invalid_request', 'body.messages', 1]]],
    ['a body that is a string', line('a', { body: 'hi' }), [['invalid_request', 'body', 1]]],
    ['a custom_id that is a number', line('a', { custom_id: 7 }), [['invalid_request', 'custom_id', 1]]],
    ['a custom_id twice', `${line('a')}\n${line('a')}`, [['duplicate_custom_id', 'custom_id', 2]]],
    ['nesting that parsers take and writers do not', deep, [['invalid_json_line', null, 1]]],
    [
      'the model twice: an engine might take the first',
      line('a').replace('"model":"m"', '"model":"n","model":"m"'),
      [['duplicate_key', 'body.model', 1]],
    ],
    ['two bodies', line('a').replace('"body"', '"body":{},"body"'), [['duplicate_key', 'body', 1]]],
    ['no line', '\n \n', [['empty_file', null, null]]],
  ])('refuses %s', (_, text, errors) => {
    expect(codes(text)).toEqual(errors);
  });

  it('accepts several models, and puts the lines of each into chunks of their own', () => {
    const other = (id: string) => line(id, { body: { ...body, model: 'n' } });
    const checked = check([line('a'), line('b'), other('c'), line('d')].join('\n'));
    expect(checked).toMatchObject({ lines: 4, errors: [], demands: [{ model: 'm' }, { model: 'n' }] });
    expect(checked).not.toHaveProperty('model');
    expect(checked.chunks.map(({ demands, lines }) => [demands, lines])).toEqual([
      [0, 2],
      [1, 1],
      [0, 1],
    ]);
  });

  it('accepts one function only, because a node loads it for the whole batch', () => {
    const endpoint = FUNCTIONS_ENDPOINT;
    const call = (id: string, model: string) => line(id, { url: endpoint, body: { model, input: 1 } });
    const text = `${call('a', 'function:file-a')}\n${call('b', 'function:file-b')}`;
    expect(codes(text, { endpoint })).toEqual([['mismatched_model', 'body.model', 2]]);
  });

  it('collects the files that lines of functions name, each once, and refuses what is no list of them', () => {
    const endpoint = FUNCTIONS_ENDPOINT;
    const call = (id: string, files: unknown) =>
      line(id, { url: endpoint, body: { model: 'function:file-a', input: 1, files } });
    const checked = check([call('a', ['file-1', 'file-2']), call('b', ['file-2']), call('c', null)].join('\n'), {
      endpoint,
    });
    expect(checked).toMatchObject({ errors: [], files: ['file-1', 'file-2'] });
    for (const files of ['file-1', ['../../etc/passwd'], [1], new Array(65).fill('file-1')])
      expect(codes(call('a', files), { endpoint })).toEqual([['invalid_request', 'body.files', 1]]);
    const many = Array.from({ length: 17 }, (_, n) =>
      call(
        `${n}`,
        Array.from({ length: 64 }, (_, file) => `file-${n}-${file}`),
      ),
    );
    expect(codes(many.join('\n'), { endpoint }).slice(0, 1)).toEqual([['invalid_request', 'body.files', 16]]);
    expect(check(line('a', { body: { ...body, files: ['file-1'] } })).files, 'of an engine').toEqual([]);
  });

  it.each<[BatchEndpoint, Record<string, unknown>, string | undefined]>([
    ['/v1/rerank', { query: 'q', documents: ['d'] }, undefined],
    ['/v1/rerank', { query: 'q' }, 'body.documents'],
    ['/v1/score', { text_1: 'a', text_2: ['b'] }, undefined],
    ['/v1/score', { query: 'a', items: ['b'] }, undefined],
    ['/v1/score', { text_1: 'a' }, 'body.text_2'],
    ['/v1/classify', { input: 'x' }, undefined],
    ['/v1/audio/transcriptions', { file_url: 'data:audio/wav;base64,UklGRg==' }, undefined],
    ['/v1/audio/transcriptions', { file_url: 'http://169.254.169.254/latest' }, 'body.file_url'],
    ['/v1/audio/transcriptions', { file_url: 'data:audio/wav;base64,UklG\r\nx: y' }, 'body.file_url'],
    ['/v1/audio/transcriptions', { file_url: ['data:audio/wav;base64,UklGRg=='] }, 'body.file_url'],
    [
      '/v1/audio/translations',
      { file_url: 'data:audio/wav;base64,UklGRg==', response_format: 'srt' },
      'body.response_format',
    ],
  ])('%s with %j', (endpoint, members, param) => {
    const one = line('a', { url: endpoint, body: { model: 'm', ...members } });
    expect(codes(one, { endpoint })).toEqual(param === undefined ? [] : [['invalid_request', param, 1]]);
  });

  it('refuses each line of a model that the key may not use, and asks for each model once', () => {
    const asked: string[] = [];
    const allowsModel = (model: string) => asked.push(model) === 0;
    expect(codes(`${line('a')}\n${line('b')}`, { allowsModel })).toEqual([
      ['model_not_found', 'body.model', 1],
      ['model_not_found', 'body.model', 2],
    ]);
    expect(asked).toEqual(['m']);
  });

  it('keeps requirements and trusted providers of lines apart', () => {
    const demanding = line('b', {
      body: { ...body, metadata: { otela_require: 'gpu=H100', otela_trusted_providers: 'a' } },
    });
    const checked = check(`${line('a')}\n${demanding}\n`);
    expect(checked.demands).toEqual([{ model: 'm' }, { model: 'm', require: 'gpu=H100', trustedProviders: 'a' }]);
    expect(checked.chunks).toHaveLength(2);
    const many = Array.from({ length: LINE_REQUIREMENTS_MAX + 1 }, (_, i) =>
      line(`${i}`, { body: { ...body, metadata: { otela_require: `gpu=${i}` } } }),
    );
    expect(codes(many.join('\n'))).toEqual([['invalid_request', 'body.metadata', LINE_REQUIREMENTS_MAX + 1]]);
  });

  it('refuses a line above its bound without keeping it, and reads on', () => {
    const input = new InputCheck({ endpoint: ENDPOINT });
    const piece = new Uint8Array(1024 * 1024).fill(0x61);
    for (let i = 0; i < 10; i++) input.push(piece);
    input.push(new TextEncoder().encode(`\n${line('b')}\n`));
    expect(input.end()).toMatchObject({ lines: 1, errors: [{ code: 'line_too_long', line: 1 }] });
    expect(LINE_MAX_BYTES).toBeLessThan(10 * piece.length);
  });

  it('refuses more lines than a batch may have', () => {
    const input = new InputCheck({ endpoint: ENDPOINT });
    for (let i = 0; i <= LINES_MAX; i++) input.push(new TextEncoder().encode(`${line(`${i}`)}\n`));
    expect(input.end()).toMatchObject({ lines: LINES_MAX, errors: [{ code: 'too_many_tasks' }] });
  });

  it('lists no more errors than its bound', () => {
    expect(check('nope\n'.repeat(ERRORS_MAX + 5))).toMatchObject({ errors: { length: ERRORS_MAX } });
  });

  it('counts the inputs of embeddings', () => {
    const embeddings = (id: string, input: unknown) => line(id, { url: '/v1/embeddings', body: { model: 'm', input } });
    const endpoint = '/v1/embeddings';
    expect(codes(embeddings('a', Array(50_001).fill('x')), { endpoint })).toEqual([
      ['too_many_tasks', 'body.input', null],
    ]);
    expect(codes(embeddings('a', Array(50_001).fill(7)), { endpoint })).toEqual([]);
  });

  it('cuts chunks that cover every line once, within both bounds', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 9_000 }), { minLength: 1, maxLength: 300 }),
        fc.integer({ min: 1, max: 5_000 }),
        (lengths, step) => {
          const lines = lengths.map((length, i) => line(`${i}`, { body: { ...body, messages: ['x'.repeat(length)] } }));
          const bytes = new TextEncoder().encode(lines.join('\n'));
          const input = new InputCheck({ endpoint: ENDPOINT });
          for (let at = 0; at < bytes.length; at += step * 7) input.push(bytes.subarray(at, at + step * 7));
          const { chunks, errors } = input.end();
          expect(errors).toEqual([]);
          const seen: string[] = [];
          for (const chunk of chunks) {
            expect(chunk.first).toBe(seen.length);
            expect(chunk.lines).toBeLessThanOrEqual(CHUNK_LINES);
            if (chunk.lines > 1) expect(chunk.bytes).toBeLessThanOrEqual(CHUNK_BYTES);
            const part = bytes.subarray(chunk.offset, chunk.offset + chunk.bytes);
            const splitter = new LineSplitter(
              LINE_MAX_BYTES,
              (one) => seen.push(new TextDecoder().decode(one.bytes)),
              () => {},
            );
            splitter.push(part);
            splitter.end();
          }
          expect(seen).toEqual(lines);
        },
      ),
      { numRuns: 40 },
    );
  });
});
