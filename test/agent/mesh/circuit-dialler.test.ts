import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import type { ProvenConnection } from '../../../agent/mesh/channel/accept-channel.ts';
import { agentRendezvous } from '../../../agent/mesh/circuit/circuit-dialer.ts';

it('a relay that is reached after the need is gone keeps no connection', async () => {
  const socket = new PassThrough();
  const dialled = Promise.withResolvers<ProvenConnection>();
  const meeting = agentRendezvous({ session: 'r', addresses: [] }, () => dialled.promise);
  const abort = new AbortController();
  const met = meeting.meet('c', abort.signal);
  abort.abort(); // the direct dial succeeded first
  dialled.resolve({ socket } as unknown as ProvenConnection);
  await expect(met).rejects.toMatchObject({ code: 'broken' });
  expect(socket.destroyed).toBe(true);
});
