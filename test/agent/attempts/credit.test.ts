/** The gateway's credit is returned however a request ends: a leak here leads to a node that accepts no bodies. */
import { afterEach, describe, expect, it } from 'vitest';
import { SOCKET_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { openAgentSide } from '../../support/tunnel/agent-side.ts';
import { openingFrame } from '../../support/tunnel/hand-gateway.ts';

/** Credit that a link may hold back until there is enough for a frame: see SocketWindow. */
const GRANT_BYTES = 256 * 1024;

afterEach(endAll);

describe('the socket’s credit', () => {
  it('comes back for uploads that were cancelled before the engine took them', async () => {
    const { socket } = await openAgentSide();
    socket.byHand = true;
    const bytes = new Uint8Array(64 * 1024);
    for (let stream = 1; stream <= 40; stream++) {
      socket.put(
        openingFrame(stream, { bodyLength: 10 * bytes.length }),
        { type: 'data', stream, offset: 0, bytes },
        { type: 'data', stream, offset: bytes.length, bytes },
        { type: 'reset', stream, code: 'cancelled', message: '' },
      );
      await socket.when('report', stream);
    }
    const consumed = Math.max(...socket.all('credit', 0).map((credit) => credit.consumed));
    expect(consumed).toBeGreaterThanOrEqual(40 * 2 * bytes.length - SOCKET_WINDOW_BYTES / 2);
  });

  it('comes back for uploads of streams that the gateway does not know any more, on a socket that lives on', async () => {
    const { socket, log } = await openAgentSide();
    socket.byHand = true;
    const bytes = new Uint8Array(64 * 1024);
    for (let stream = 1; stream <= 24; stream++)
      socket.put(
        openingFrame(stream, { bodyLength: 10 * bytes.length }),
        { type: 'data', stream, offset: 0, bytes },
        { type: 'reset', stream, code: 'unknown', message: '' },
        { type: 'data', stream, offset: bytes.length, bytes },
      );
    const consumed = await eventually('credit for all uploads', 3_000, () => {
      const most = Math.max(0, ...socket.all('credit', 0).map((credit) => credit.consumed));
      return most >= 24 * 2 * bytes.length - GRANT_BYTES ? most : undefined;
    });
    expect(consumed).toBeLessThanOrEqual(24 * 2 * bytes.length);
    expect(log.join('\n')).not.toMatch(/credit of/);
  });
});
