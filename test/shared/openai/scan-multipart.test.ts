import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { scanMultipart } from '../../../shared/openai/scan-multipart.ts';
import { costBeside, readOnce } from '../../support/cost.ts';
import { bytes } from './support.ts';

const TYPE = 'multipart/form-data; boundary=XX';
const part = (disposition: string, value: string, more = '') =>
  `--XX\r\nContent-Disposition: form-data; ${disposition}\r\n${more}\r\n${value}\r\n`;
const file = part('name="file"; filename="a b;c.wav"', 'RIFF\r\n-- --X \u0000\r\n', 'Content-Type: audio/wav\r\n');
const model = part('name="model"', 'whisper-1');
const END = '--XX--\r\n';

const scan = (body: string | Uint8Array, type = TYPE) =>
  scanMultipart(typeof body === 'string' ? bytes(body) : body, type);

function failure(body: string | Uint8Array, type = TYPE): ApiError {
  try {
    scan(body, type);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('accepted');
}

describe('a scan of a multipart body', () => {
  it.each([
    ['before the file', model + file + END],
    ['after the file', file + model + END],
    ['alone, without a last line end', `${model}--XX--`],
    ['with an unquoted name', file + part('name=model', 'whisper-1') + END],
    ['with its parameters in another order and case', part('filename=x; NAME="model"', 'whisper-1') + END],
    ['with more headers around it', part('name="model"', 'whisper-1', 'Content-Type: text/plain\r\nX-A: b\r\n') + END],
  ])('finds the model %s', (_, body) => {
    expect(scan(body)).toEqual({ model: 'whisper-1', stream: false });
  });

  it('reads what Node itself writes for a form', async () => {
    const form = new FormData();
    form.set('file', new Blob([new Uint8Array(70_000).map((_, i) => i * 7)]), 'sé"x\r\n.wav');
    form.set('model', 'openai/whisper-größe');
    form.set('stream', 'true');
    const request = new Request('http://x', { method: 'POST', body: form });
    const body = new Uint8Array(await request.clone().arrayBuffer());
    expect(scan(body, request.headers.get('content-type') ?? '')).toEqual({
      model: 'openai/whisper-größe',
      stream: true,
    });
  });

  it.each([
    ['true', true],
    ['True', true],
    ['1', true],
    ['yes', true],
    ['false', false],
    ['0', false],
    ['', false],
    ['true '.repeat(100), false],
  ])('takes stream=%s as form parsers of engines do', (value, stream) => {
    expect(scan(part('name="stream"', value) + END).stream).toBe(stream);
  });

  it('has no model if none is named, and reads no file', () => {
    const inside = part(
      'name="file"; filename=f',
      'Content-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n --XX',
    );
    expect(scan(inside + END)).toEqual({ stream: false });
    expect(scan(END)).toEqual({ stream: false });
  });

  it('splits the parts for any bytes in the file', () => {
    const content = fc.array(fc.constantFrom('\r', '\n', '-', '--', 'X', 'XX', '\r\n', '\r\n-', 'a', '\u0000'), {
      maxLength: 40,
    });
    fc.assert(
      fc.property(content, fc.boolean(), (pieces, first) => {
        const inside = pieces.join('');
        const data = part('name="file"; filename="f"', inside);
        const body = first ? model + data + END : data + model + END;
        // If the boundary is at the beginning of a line, the file ends there and the body is refused.
        const doubtful = /(^|[\r\n])--XX/.test(inside);
        if (doubtful) expect(failure(body).status).toBe(400);
        else expect(scan(body).model).toBe('whisper-1');
      }),
      { numRuns: 2000 },
    );
  });

  it('reads a quoted boundary', () => {
    const type = 'Multipart/Form-Data; charset=utf-8; Boundary="a b?=:"';
    expect(scan((model + END).replaceAll('--XX', '--a b?=:'), type).model).toBe('whisper-1');
  });
});

describe('a multipart body that parsers could read differently', () => {
  it.each([
    ['two models', model + file + model + END, 'duplicate_key'],
    ['two streams', part('name=stream', '1') + part('name=stream', '0') + END, 'duplicate_key'],
    ['an empty model', part('name="model"', '') + END, 'invalid_request'],
    ['a model of 257 bytes', part('name="model"', 'm'.repeat(257)) + END, 'invalid_request'],
  ])('is refused: %s', (_, body, code) => {
    const error = failure(body);
    expect([error.status, error.code]).toEqual([400, code]);
    expect(['model', 'stream']).toContain(error.param);
  });

  it.each([
    ['an empty body', '', 'begin with the boundary'],
    ['a preamble', `hello\r\n${model}${END}`, 'begin with the boundary'],
    ['no closing boundary', model + file, 'closing boundary'],
    ['a cut part', model.slice(0, -6), 'closing boundary'],
    ['an epilogue', `${model}${END}${model}`, 'follows the closing boundary'],
    ['line feeds alone', (model + END).replaceAll('\r\n', '\n'), 'CRLF'],
    ['a boundary after a bare line feed', part('name="model"', 'whisper\n--XX\n') + END, 'preceded by CRLF'],
    ['a boundary after a bare carriage return', part('name="file"', 'a\r--XX') + END, 'preceded by CRLF'],
    [
      'a boundary right after the headers',
      `--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n${model}${END}`,
      'preceded by CRLF',
    ],
    ['a longer boundary', `--XXY\r\n${model.slice(6)}${END}`, 'followed by CRLF'],
    ['padding after a boundary', model.replace('--XX', '--XX ') + END, 'followed by CRLF'],
    ['a part without headers', `--XX\r\n\r\nvalue\r\n${END}`, 'header'],
    ['a header without a colon', part('name="model"', 'm', 'nonsense\r\n') + END, 'malformed header'],
    ['a folded header', part('name="file";\r\n name="model"', 'm') + END, 'malformed header'],
    ['a bare line feed in a header', part('name="file"\n; name="model"', 'm') + END, 'malformed header'],
    ['another disposition', model.replace('form-data', 'attachment') + END, 'content-disposition'],
    ['two dispositions', part('name="file"', 'm', 'content-disposition: form-data; name="model"\r\n') + END, 'two'],
    ['no name', part('filename="model"', 'm') + END, 'name'],
    ['two names', part('name="file"; name="model"', 'm') + END, 'name'],
    ['a name with an escape', part('name="mo\\del"', 'm') + END, 'escaped'],
    ['a name with RFC 2231 beside it', part(`name="file"; name*=utf-8''model`, 'm') + END, 'escaped'],
    ['a name in RFC 2231 pieces', part('name="file"; name*0="model"', 'm') + END, 'escaped'],
    ['an unclosed quote', part('name="model', 'm') + END, 'name'],
    ['an encoded part', part('name="model"', 'bQ==', 'Content-Transfer-Encoding: base64\r\n') + END, 'encoding'],
    ['more parts than 100', part('name="a"', '').repeat(101) + END, '100 parts'],
    ['endless headers', part('name="a"', '', `X-A: ${'a'.repeat(17_000)}\r\n`) + END, '16384 bytes'],
  ])('is refused: %s', (_, body, words) => {
    const error = failure(body);
    expect([error.status, error.code]).toEqual([400, 'invalid_multipart']);
    expect(error.message).toContain(words);
  });

  it.each([
    'multipart/form-data',
    'multipart/form-data; boundary=',
    'multipart/form-data; boundary=""',
    `multipart/form-data; boundary=${'x'.repeat(71)}`,
    'multipart/form-data; boundary=XX; boundary=YY',
    'multipart/form-data; boundary=XX, multipart/form-data; boundary=YY',
    'multipart/form-data; boundary="XX',
    'multipart/form-data; boundary="X\\"X"',
    'multipart/form-data; boundary=ü',
  ])('is refused: content type %s', (type) => {
    expect([failure(model + END, type).code, failure(model + END, type).status]).toEqual(['invalid_multipart', 400]);
  });

  it.each(['application/json', '', 'multipart/mixed; boundary=XX', 'x; boundary=XX'])(
    'is not taken from %s',
    (type) => {
      expect(failure(model + END, type).status).toBe(415);
    },
  );

  it('never makes the scan fail in another way, wherever it is cut off', () => {
    const whole = bytes(file + model + END);
    for (let end = 0; end < whole.length - 2; end++)
      expect(failure(whole.subarray(0, end)).code).toBe('invalid_multipart');
  });

  it('costs a large file a few looks at each byte', () => {
    const audio = new Uint8Array(32 * 1024 * 1024).map((_, i) => (i * 2654435761) >>> 13);
    const head = bytes(part('name="file"; filename="f"', '').slice(0, -2));
    const body = Buffer.concat([head, audio, bytes(`\r\n${model}${END}`)]);
    expect(scan(body).model).toBe('whisper-1');
    const ratio = costBeside(
      () => scan(body),
      () => readOnce(body),
    );
    expect(ratio).toBeLessThan(20);
  });
});
