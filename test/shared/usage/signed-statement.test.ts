/** A statement is believed only as its institution signed it: every change of a file or a proof must be found. */
import { describe, expect, test } from 'vitest';
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { inclusionProof, leafHash } from '../../../shared/usage/merkle-tree.ts';
import {
  PROOF_MAX_CHARS,
  type SignedHead,
  StatementError,
  StatementReader,
  StatementWriter,
  signHead,
  verifyProof,
} from '../../../shared/usage/signed-statement.ts';
import {
  RECORD_MAX_CHARS,
  readRecordLine,
  recordLine,
  type StatementRecord,
} from '../../../shared/usage/statement-record.ts';
import { TestIssuer } from '../../support/mesh/issuer.ts';

const us = new TestIssuer();
const them = new TestIssuer();
const encoder = new TextEncoder();

function record(n: number, more: Partial<StatementRecord> = {}): StatementRecord {
  return {
    at: '2026-11-20T16:20:00.000Z',
    request: `r${n}`,
    attempt: 1,
    session: 'a'.repeat(26),
    provider: 'lab',
    model: 'org/m',
    project: 'proj_1',
    prompt: 10,
    completion: n,
    cached: 1,
    reasoning: 0,
    gpu_ms: 500,
    estimated: false,
    ...more,
  };
}

const FACTS = {
  month: '2026-11',
  side: 'served',
  issuer: us.issuer,
  peer: them.issuer,
  made_at: Date.parse('2026-12-09T00:00:00Z') / 1_000,
  final: true,
} as const;

function statement(records: readonly StatementRecord[], signer = us, facts = {}) {
  const writer = new StatementWriter(nodeCrypto);
  const lines = records.map((one) => writer.record(one));
  const head = writer.head({ ...FACTS, ...facts });
  const signed = signHead(head, { bytes: signer.certificate }, signer.gateway);
  return { lines, signed, text: [...lines, JSON.stringify(signed)] };
}

function read(lines: readonly string[]): SignedHead {
  const reader = new StatementReader(nodeCrypto);
  for (const line of lines) reader.line(line);
  return reader.end();
}

function codeOf(run: () => unknown): string | undefined {
  try {
    run();
  } catch (error) {
    if (error instanceof StatementError) return error.code;
    throw error;
  }
  return undefined;
}

const records = Array.from({ length: 9 }, (_, n) => record(n));

test('a statement is read as it was signed, with its sums', () => {
  const { text } = statement(records);
  expect(read(text).statement).toMatchObject({ size: 9, prompt: 90, completion: 36, gpu_ms: 4_500, final: true });
  expect(read(statement([]).text).statement.size).toBe(0);
});

describe('a changed file', () => {
  const { lines, text, signed } = statement(records);
  const last = JSON.stringify(signed);
  const changed = recordLine(record(3, { completion: 4 }));

  test.each([
    ['is cut before its last line', lines, 'unsigned'],
    ['is empty', [], 'unsigned'],
    ['lacks a record', [...lines.slice(1), last], 'wrong_root'],
    ['has a record twice', [...lines, lines[0] ?? '', last], 'wrong_root'],
    ['has two records in another order', [lines[1] ?? '', lines[0] ?? '', ...lines.slice(2), last], 'wrong_root'],
    ['has a replaced record', [...lines.slice(0, 3), changed, ...lines.slice(4), last], 'wrong_root'],
    [
      'has two changes that keep the sums',
      [recordLine(record(1)), recordLine(record(0)), ...lines.slice(2), last],
      'wrong_root',
    ],
    ['has text after its last line', [...text, lines[0] ?? ''], 'malformed'],
    ['has a line of another kind', [...lines, '{}', last], 'malformed'],
    ['has a line with a blank', [`${lines[0]} `, last], 'malformed'],
    ['has a line without end', ['x'.repeat(10_000_000)], 'malformed'],
  ])('%s', (_, file, code) => {
    expect(codeOf(() => read(file))).toBe(code);
  });

  const resigned = (more: object, by = us) => {
    const head = { ...signed.statement, ...more };
    return [...lines, JSON.stringify({ ...signed, statement: head, certificate: toBase64url(by.certificate) })];
  };
  test.each([
    ['another month', resigned({ month: '2026-10' }), 'bad_signature'],
    ['another side', resigned({ side: 'used' }), 'bad_signature'],
    ['another time', resigned({ made_at: FACTS.made_at + 86_400 }), 'bad_signature'],
    ['a time before the certificate', resigned({ made_at: 1_500_000_000 }), 'bad_signature'],
    ['another institution', resigned({ issuer: them.issuer }), 'wrong_issuer'],
    ['the certificate of another institution', resigned({}, them), 'wrong_issuer'],
    ['another institution with its certificate', resigned({ issuer: them.issuer }, them), 'bad_signature'],
    ['other sums', resigned({ prompt: 91 }), 'wrong_root'],
    ['more members', resigned({ note: 'x' }), 'malformed'],
  ])('with %s in its last line', (_, file, code) => {
    expect(codeOf(() => read(file))).toBe(code);
  });

  test('a certificate that its root did not sign', () => {
    const forged = new Uint8Array(us.certificate);
    forged[40] = (forged[40] ?? 0) ^ 1;
    const file = [...lines, JSON.stringify({ ...signed, certificate: toBase64url(forged) })];
    expect(codeOf(() => read(file))).toBe('bad_signature');
  });
});

test('a record has one encoding', () => {
  const line = recordLine(record(1));
  expect(readRecordLine(line)).toEqual(record(1));
  const others = [
    line.replace(':1,', ': 1,'),
    line.replace('"attempt":1', '"attempt":1.0'),
    line.replace('"attempt":1', '"attempt":1,"attempt":1'),
    line.replace('"prompt":10', '"prompt":1e1'),
    line.replace('"lab"', '"\\u006cab"'),
    line.replace('}', ',"user":"ada"}'),
    `${line}\n`,
    JSON.stringify(record(1), Object.keys(record(1)).toReversed()),
  ];
  for (const other of others) expect([other, readRecordLine(other)]).toEqual([other, undefined]);
  const long = recordLine(record(1, { model: '\u0001'.repeat(1_024), request: '\u0001'.repeat(128) }));
  expect(long.length).toBeLessThan(RECORD_MAX_CHARS);
  expect(readRecordLine(long)).toBeDefined();
});

describe('a proof', () => {
  const { lines, signed } = statement(records);
  const hashes = lines.map((line) => leafHash(encoder.encode(line), nodeCrypto));
  const proofOf = (index: number, more: object = {}) =>
    JSON.stringify({
      record: lines[index],
      index,
      proof: inclusionProof(hashes, index, nodeCrypto).map(toBase64url),
      signed,
      ...more,
    });

  test('shows each record of the statement', () => {
    for (const index of lines.keys()) {
      const proven = verifyProof(proofOf(index), nodeCrypto);
      expect([proven.record, proven.statement]).toEqual([record(index), signed.statement]);
    }
  });

  test.each([
    ['of a replaced record', proofOf(3, { record: recordLine(record(3, { completion: 4 })) }), 'wrong_root'],
    ['of another place', proofOf(3, { index: 2 }), 'wrong_root'],
    [
      'with the path of another record',
      proofOf(3, { proof: inclusionProof(hashes, 4, nodeCrypto).map(toBase64url) }),
      'wrong_root',
    ],
    ['without a path', proofOf(3, { proof: [] }), 'wrong_root'],
    [
      'with a forged size',
      proofOf(0, { signed: { ...signed, statement: { ...signed.statement, size: 1 } } }),
      'bad_signature',
    ],
    [
      'with a forged root',
      proofOf(0, {
        proof: [],
        signed: {
          ...signed,
          statement: { ...signed.statement, root: toBase64url(hashes[0] ?? new Uint8Array()), size: 1 },
        },
      }),
      'bad_signature',
    ],
    ['with a record in another form', proofOf(3, { record: `${lines[3]} ` }), 'malformed'],
    [
      'with a long path',
      proofOf(3, { proof: new Array(41).fill(toBase64url(hashes[0] ?? new Uint8Array())) }),
      'malformed',
    ],
    ['with a short hash', proofOf(3, { proof: ['AAAA'] }), 'malformed'],
    ['that is not JSON', '{', 'malformed'],
    ['that is too long', `${proofOf(3)}${' '.repeat(PROOF_MAX_CHARS)}`, 'malformed'],
  ])('%s is refused', (_, text, code) => {
    expect(codeOf(() => verifyProof(text, nodeCrypto))).toBe(code);
  });
});
