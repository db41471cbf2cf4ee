/** Where an agent listens for others, whom it knows, who passes its bytes on. */
import { describe, expect, it } from 'vitest';
import { meshConfig } from '../../../agent/cli/mesh-config.ts';

describe('where an agent listens', () => {
  it.each([
    [undefined, { port: 0 }],
    ['on', { port: 0 }],
    ['off', undefined],
    [':7000', { port: 7000 }],
    ['0.0.0.0', { port: 0 }],
    ['0.0.0.0:7000', { port: 7000 }],
    ['10.1.0.11', { host: '10.1.0.11', port: 0 }],
    ['10.1.0.11:7000', { host: '10.1.0.11', port: 7000 }],
    ['node17.ib', { host: 'node17.ib', port: 0 }],
    ['[fd00::1]:7000', { host: 'fd00::1', port: 7000 }],
    ['fd00::1', { host: 'fd00::1', port: 0 }],
  ])('%s', (text, listen) => {
    expect(meshConfig(text, [], undefined, false).listen).toEqual(listen);
  });

  it.each([':70000', 'a b', 'http://x', ''])('is refused with a sentence: "%s"', (text) => {
    expect(() => meshConfig(text, [], undefined, false)).toThrow(`--mesh: "${text}" is neither`);
  });
});

it('takes peers and a relay as HOST:PORT only', () => {
  const config = meshConfig(undefined, ['login1:7000', '[fd00::1]:7'], 'login2:7000', false);
  expect(config).toMatchObject({ peers: ['login1:7000', '[fd00::1]:7'], relay: 'login2:7000' });
  expect(() => meshConfig(undefined, ['login1'], undefined, false)).toThrow('--peer: "login1" is not HOST:PORT');
  expect(() => meshConfig(undefined, [], 'x:0', false)).toThrow('--relay: "x:0" is not HOST:PORT');
  expect(() => meshConfig(undefined, Array(33).fill('a:1'), undefined, false)).toThrow('at most 32 peers');
  expect(() => meshConfig('off', [], undefined, true)).toThrow('--offer-relay needs a place to listen');
});
