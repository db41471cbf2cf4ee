/**
 * Vectors that every implementation reads: clients/python has the same file, in
 * test/conformance/sealed/sealed-vectors.py.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import * as z from 'zod';
import { AnswerOpener } from '../../../clients/seal/answer-opener.ts';
import { sealBody } from '../../../clients/seal/seal-request.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { evidenceMessage } from '../../../shared/seal/attestation-evidence.ts';
import { padme } from '../../../shared/seal/chunk-padding.ts';
import { requestInfo } from '../../../shared/seal/request-binding.ts';
import { prependHead } from '../../../shared/seal/sealed-plaintext.ts';

const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'));
const hexText = z.string().transform(bytes);
const pairs = z.array(z.tuple([z.string(), z.string()]));
const schema = z.object({
  info: z.object({
    path: z.string(),
    model: z.string(),
    stream: z.boolean(),
    resume: z.boolean(),
    nonce: hexText,
    at: z.number(),
    until: z.number(),
    bytes: z.string(),
  }),
  padme: z.array(z.tuple([z.number(), z.number()])),
  bodies: z.array(z.object({ cek: hexText, nonce: hexText, headers: pairs, body: z.string(), sealed: z.string() })),
  answer: z.object({
    kid: hexText,
    enc: hexText,
    secret: hexText,
    frames: hexText,
    status: z.number(),
    headers: pairs,
    body: z.string(),
  }),
  evidence: z.object({ key: hexText, nonce: hexText, report_data: z.string() }),
});
const vectors = schema.parse(JSON.parse(readFileSync(new URL('../../fixtures/seal.json', import.meta.url), 'utf8')));

it('what is bound, and how much is padded', () => {
  expect(Buffer.from(requestInfo(vectors.info)).toString('hex')).toBe(vectors.info.bytes);
  for (const [size, wanted] of vectors.padme) expect(padme(size)).toBe(wanted);
});

it('bodies', async () => {
  for (const { cek, nonce, headers, body, sealed } of vectors.bodies) {
    const made = await sealBody(cek, nonce, prependHead(headers, Buffer.from(body)));
    expect(createHash('sha256').update(made).digest('hex')).toBe(sealed);
  }
});

it('an answer', async () => {
  const { kid, enc, secret, frames, status, headers, body } = vectors.answer;
  const node = {
    session: 's',
    provider: 'p',
    mode: 'pinned' as const,
    kid: toBase64url(kid),
    key: new Uint8Array(32),
    until: 0,
  };
  const opener = new AnswerOpener(ReadableStream.from([frames]), {
    secrets: new Map([[node.kid, { node, salt: enc, secret }]]),
    resume: false,
  });
  expect(await opener.next()).toEqual({ kind: 'head', head: { status, headers }, node });
  let read = '';
  for (let next = await opener.next(); next.kind !== 'end'; next = await opener.next())
    if (next.kind === 'data') read += Buffer.from(next.bytes).toString();
  expect(read).toBe(body);
});

it('what evidence of a machine is made over', () => {
  const { key, nonce, report_data: wanted } = vectors.evidence;
  expect(createHash('sha512').update(evidenceMessage(key, nonce)).digest('hex')).toBe(wanted);
});
