import { env } from 'cloudflare:test';
import { expect, it } from 'vitest';
import { checkEnvironment, environmentNumber } from '../../gateway/environment-checks.ts';

it.each([
  ['BODY_LIMIT_BYTES', '32M'],
  ['BODY_BUDGET_BYTES', '-1'],
  ['BODY_STALL_MS', '30s'],
  ['BODY_UPLOADS_BYTES', '1e9'],
  ['USAGE_KEPT_DAYS', 'forever'],
  ['USAGE_HELD_RECORDS', '0x10'],
  ['REQUEST_LOG', 'errors'],
  ['OLDEST_AGENT', 'new'],
  ['RELEASE_KEYS', 'no key'],
  ['CORS_ORIGINS', 'chat.example.org'],
  ['CORS_ORIGINS', 'https://chat.example.org/'],
  ['CORS_ORIGINS', 'https://*.example.org'],
  ['CORS_ORIGINS', 'https://Chat.example.org'],
  ['CORS_ORIGINS', 'null'],
  ['CORS_ORIGINS', 'https://a.example.org, *'],
])('refuses %s=%s by the name of the variable', (name, value) => {
  expect(() => checkEnvironment({ [name]: value })).toThrow(name);
});

it('takes unset and empty variables as unset', () => {
  const empty = { BODY_LIMIT_BYTES: '', REQUEST_LOG: ' ', OLDEST_AGENT: '' };
  expect(() => checkEnvironment({ ...empty, HOME: '/root' })).not.toThrow();
  expect(environmentNumber({ ...env, ...empty }, 'BODY_LIMIT_BYTES')).toBeUndefined();
  expect(environmentNumber({ ...env, BODY_LIMIT_BYTES: ' 1024 ' }, 'BODY_LIMIT_BYTES')).toBe(1024);
});

it('lets no body limit vanish because its value has a unit', () => {
  expect(() => environmentNumber({ ...env, BODY_LIMIT_BYTES: '32M' }, 'BODY_LIMIT_BYTES')).toThrow('whole number');
});
