import { expect, it } from 'vitest';
import { PeerWatchdog } from '../../../shared/attempts/peer-watchdog.ts';

it('a silent peer is asked once for a sign of life, and is gone once when it gives none', () => {
  const watchdog = new PeerWatchdog(5_000, 12_000);
  watchdog.onReceived(1_000);
  const seen = Array.from({ length: 240 }, (_, n) => 1_000 + n * 250).map((at) => [at, watchdog.look(at)] as const);
  const [asked, gone, again] = seen.filter(([, what]) => what !== 'wait');
  expect([asked, gone, again]).toEqual([
    [6_000, 'ask'],
    [18_000, 'gone'],
    [23_000, 'ask'],
  ]);
});

it('a peer that answers is not gone, and is asked again only after its next silence', () => {
  const watchdog = new PeerWatchdog(5_000, 12_000);
  watchdog.onReceived(0);
  expect(watchdog.look(5_000)).toBe('ask');
  watchdog.onReceived(16_999);
  expect(watchdog.look(17_000)).toBe('wait');
  expect(watchdog.look(21_998)).toBe('wait');
  expect(watchdog.look(21_999)).toBe('ask');
});
