/** Where the ingress listens, which providers it trusts, and which providers the node serves. */
import { describe, expect, it } from 'vitest';
import { ingressConfig } from '../../../agent/config/ingress-config.ts';

describe('where an ingress listens', () => {
  it.each([
    ['127.0.0.1:8080', { host: '127.0.0.1', port: 8080 }],
    ['localhost:0', { host: 'localhost', port: 0 }],
    ['8080', { host: '127.0.0.1', port: 8080 }],
    [':0', { host: '127.0.0.1', port: 0 }],
    ['0.0.0.0:8080', { host: '0.0.0.0', port: 8080 }],
    ['[::1]:8080', { host: '::1', port: 8080 }],
  ])('%s', (text, listen) => {
    expect(ingressConfig(text, [], []).listen).toEqual(listen);
  });

  it.each(['', 'localhost', 'http://localhost:80', ':70000', 'a b:1', 'x:99999'])(
    'is refused with a sentence: "%s"',
    (text) => {
      expect(() => ingressConfig(text, [], [])).toThrow(`--ingress: "${text}" is not HOST:PORT`);
    },
  );
});

it('trusts and serves its own provider where nobody says otherwise', () => {
  expect(ingressConfig(undefined, [], [])).toEqual({
    listen: undefined,
    trust: undefined,
    serveTo: undefined,
    policy: undefined,
  });
});

it('takes providers of its own issuer and of others', () => {
  const config = ingressConfig('127.0.0.1:0', ['eth, psi@cern', 'eth'], ['lab']);
  expect(config).toMatchObject({ trust: ['eth', 'psi@cern'], serveTo: ['lab'] });
  expect(() => ingressConfig('127.0.0.1:0', ['ETH!'], [])).toThrow('--trust: "ETH!" is no provider');
  expect(() => ingressConfig(undefined, [], ['@x'])).toThrow('--serve-to: "@x" is no provider');
  expect(() => ingressConfig(undefined, ['eth'], [])).toThrow('--trust needs --ingress');
});

it('takes the name of a policy that is shipped, where there is an ingress', () => {
  expect(ingressConfig('127.0.0.1:0', [], [], 'round-robin')).toMatchObject({ policy: 'round-robin' });
  expect(() => ingressConfig('127.0.0.1:0', [], [], 'fastest')).toThrow(
    '--policy: "fastest" is none of random, round-',
  );
  expect(() => ingressConfig(undefined, [], [], 'random')).toThrow('--policy needs --ingress');
});
