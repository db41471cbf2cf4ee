/** Where the ingress listens, which providers it trusts, and which providers the node serves. */
import { describe, expect, it } from 'vitest';
import { ingressConfig } from '../../../agent/config/ingress-config.ts';
import { settingsOf } from '../support/settings.ts';

const read = (flags: Record<string, string[]>) => ingressConfig(settingsOf(flags));

describe('where an ingress listens', () => {
  it.each([
    ['127.0.0.1:8080', { host: '127.0.0.1', port: 8080 }],
    ['localhost:0', { host: 'localhost', port: 0 }],
    ['8080', { host: '127.0.0.1', port: 8080 }],
    [':0', { host: '127.0.0.1', port: 0 }],
    ['0.0.0.0:8080', { host: '0.0.0.0', port: 8080 }],
    ['[::1]:8080', { host: '::1', port: 8080 }],
  ])('%s', (text, listen) => {
    expect(read({ ingress: [text] }).listen).toEqual(listen);
  });

  it.each(['', 'localhost', 'http://localhost:80', ':70000', 'a b:1', 'x:99999'])(
    'is refused with a sentence: "%s"',
    (text) => {
      expect(() => read({ ingress: [text] })).toThrow(`--ingress: "${text}" is not HOST:PORT`);
    },
  );
});

it('trusts and serves its own provider by default', () => {
  expect(read({})).toEqual({
    listen: undefined,
    trust: undefined,
    serveTo: undefined,
    policy: undefined,
  });
});

it('accepts providers of its own issuer and of others', () => {
  const config = read({ ingress: ['127.0.0.1:0'], trust: ['eth, psi@cern', 'eth'], 'serve-to': ['lab'] });
  expect(config).toMatchObject({ trust: ['eth', 'psi@cern'], serveTo: ['lab'] });
  expect(() => read({ ingress: ['127.0.0.1:0'], trust: ['ETH!'] })).toThrow('--trust: "ETH!" is not a provider');
  expect(() => read({ 'serve-to': ['@x'] })).toThrow('--serve-to: "@x" is not a provider');
  expect(() => read({ trust: ['eth'] })).toThrow('--trust needs --ingress');
});

it('takes the name of a policy that is shipped, where there is an ingress', () => {
  expect(read({ ingress: ['127.0.0.1:0'], policy: ['round-robin'] })).toMatchObject({ policy: 'round-robin' });
  expect(() => read({ ingress: ['127.0.0.1:0'], policy: ['fastest'] })).toThrow(
    '--policy: "fastest" is neither one of random, round-',
  );
  expect(() => read({ policy: ['random'] })).toThrow('--policy needs --ingress');
});
