import { expect, it } from 'vitest';
import { REDACTED, redactor } from '../../../agent/host/redact-secrets.ts';
import { costBeside } from '../../support/cost.ts';

const redact = redactor(['join-token-of-this-agent'], {
  VLLM_API_KEY: 'a1b2c3d4e5f6',
  OTELA_TOKEN_FILE: '/home/ada/.otela-token',
  HF_TOKEN: 'plain-word-token',
  SHORT_KEY: 'abc',
  PATH: '/usr/bin',
});

it.each([
  'started with join-token-of-this-agent',
  'api key a1b2c3d4e5f6 in use',
  'token plain-word-token',
  'Authorization: Bearer abcdefgh12345678',
  'sk-otela-0123456789abcdef0123456789abcdef0123456789a',
  'hf_abcdefghijklmnop',
  'clone https://ada:hunter22@git.example.org/x',
  '--api-key=0123456789',
  '{"password": "0123456789"}',
  "non-default args: {'api_key': ['0123456789'], 'port': 8000}",
  'vllm serve m --api-key 0123456789 --port 8000',
  'postgresql+psycopg://ada:hunter22@db/x',
  'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sflKxwRJSMeKKF2QT4',
  '-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----',
  '-----BEGIN PRIVATE KEY-----\nMIIE cut off',
])('%s', (text) => {
  const out = redact(text);
  expect(out).toContain(REDACTED);
  expect(out).not.toMatch(/of-this-agent|a1b2c3|plain-word|abcdefgh|0123456789|hunter22|sflKxw|MIIE/);
});

it('leaves text without secrets unchanged', () => {
  const text = 'loading /home/ada/.otela-token abc; 12 tokens: 345; Basic usage; max_tokens=16';
  expect(redact(text)).toBe(text);
});

it.each([
  ['of letters', 'x'.repeat(256 * 1024)],
  ['of beginnings of JSON Web Tokens', 'eyJ-'.repeat(64 * 1024)],
  ['of names of secrets', 'token'.repeat(50 * 1024)],
  ['of dashes', '-'.repeat(256 * 1024)],
  ['of flags', '--token '.repeat(32 * 1024)],
])('a long line %s does not hold up the end of a job', (_, text) => {
  const plain = 'an ordinary word '.repeat(Math.ceil(text.length / 17));
  const ratio = costBeside(
    () => redact(text),
    () => redact(plain),
  );
  expect(ratio).toBeLessThan(500); // quadratic cost would give about ten thousand
});
