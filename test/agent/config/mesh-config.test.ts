/** Where an agent listens for others, which it knows, and which relay forwards its bytes. */
import { describe, expect, it } from 'vitest';
import { meshConfig } from '../../../agent/config/mesh-config.ts';
import { settingsOf } from '../support/settings.ts';

const read = (flags: Record<string, string[]>) => meshConfig(settingsOf(flags));

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
    expect(read(text === undefined ? {} : { mesh: [text] }).listen).toEqual(listen);
  });

  it.each([':70000', 'a b', 'http://x', ''])('is refused with a sentence: "%s"', (text) => {
    expect(() => read({ mesh: [text] })).toThrow(`--mesh: "${text}" is neither`);
  });
});

it('takes peers and a relay as HOST:PORT only', () => {
  const config = read({ peer: ['login1:7000', '[fd00::1]:7'], relay: ['login2:7000'] });
  expect(config).toMatchObject({ peers: ['login1:7000', '[fd00::1]:7'], relay: 'login2:7000' });
  expect(() => read({ peer: ['login1'] })).toThrow('--peer: "login1" is not HOST:PORT');
  expect(() => read({ relay: ['x:0'] })).toThrow('--relay: "x:0" is not HOST:PORT');
  expect(() => read({ peer: Array(33).fill('a:1') })).toThrow('at most 32 peers');
  expect(() => read({ mesh: ['off'], 'offer-relay': ['true'] })).toThrow('--offer-relay needs an address');
});

it('releases that peers have to be of: keys, the oldest version, and what is wrong with either', () => {
  const key = Buffer.alloc(32, 7).toString('base64url');
  expect(read({}).peerReleases).toBeUndefined();
  const rules = read({ 'peer-release-keys': [key], 'oldest-peer': ['0.2.0'] }).peerReleases;
  expect(rules).toEqual({ keys: [new Uint8Array(32).fill(7)], oldest: '0.2.0' });
  expect(() => read({ 'peer-release-keys': ['short'] })).toThrow('not a list of release keys');
  expect(() => read({ 'peer-release-keys': [key], 'oldest-peer': ['new'] })).toThrow('not a version');
  expect(() => read({ 'oldest-peer': ['0.2.0'] })).toThrow('needs --peer-release-keys');
});
