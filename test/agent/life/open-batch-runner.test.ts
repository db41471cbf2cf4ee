import { expect, test } from 'vitest';
import { batchGateways } from '../../../agent/life/open-batch-runner.ts';

test('lines and functions come from gateways of the own institution only: a peer’s would run its code here', () => {
  const named = (name: string, own: boolean) => ({ url: new URL(`http://${name}/`), own });
  const connected = [named('home', true), named('second', true), named('peer', false)];
  const gateways = batchGateways({
    config: { gateways: [new URL('http://home/')] },
    parts: { sessions: { current: { connected } } },
  });
  expect([...new Set(gateways().map(({ host }) => host))]).toEqual(['home', 'second']);
});
