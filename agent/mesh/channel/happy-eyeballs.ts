import { connect, type Socket } from 'node:net';
import { waitClock } from '../../wait-clock.ts';
import { ChannelError } from './channel-error.ts';
import { CONNECT_MS } from './channel-limits.ts';

/**
 * After this time the next address is tried in parallel (RFC 8305 §5). Hosts of clusters have several networks, of
 * which some are unreachable.
 */
const STAGGER_MS = 250;

export interface Address {
  host: string;
  port: number;
}

/**
 * Resolves with the first TCP connection to any of the addresses, and abandons the other attempts. Removes the
 * addresses that failed, and the successful one, from `left`, so that another call tries the remaining ones.
 * @throws ChannelError `unreachable` if no address accepts a connection; `left` is then empty. It has a `cause` only if
 * every address refused: then no program listens there any more.
 */
export function firstConnection(left: Address[], signal?: AbortSignal, localPort?: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const open = new Map<Socket, Address>();
    const untried = [...left];
    let trouble = 'no address';
    let refusal: Error | undefined;
    let isRefused = true;
    const end = (act: () => void) => {
      clearInterval(stagger);
      endWait();
      signal?.removeEventListener('abort', onAbort);
      for (const socket of open.keys()) socket.destroy();
      act();
    };
    const fail = (why: string, cause?: Error) => {
      left.length = 0;
      end(() => reject(new ChannelError('unreachable', why, { cause })));
    };
    const drop = (address: Address) => {
      const at = left.indexOf(address);
      if (at >= 0) left.splice(at, 1);
    };
    const next = () => {
      const address = untried.shift();
      if (address === undefined) return open.size === 0 ? fail(trouble, refusal) : undefined;
      const socket = connect({ ...address, noDelay: true, ...(localPort !== undefined && { localPort }) });
      open.set(socket, address);
      socket.on('error', (error) => {
        if (!open.delete(socket)) return;
        trouble = `${address.host}:${address.port}: ${error.message}`;
        isRefused &&= 'code' in error && error.code === 'ECONNREFUSED';
        refusal = isRefused ? error : undefined;
        drop(address);
        next();
      });
      socket.once('connect', () => {
        if (!open.delete(socket)) return;
        drop(address);
        end(() => resolve(socket));
      });
    };
    const onAbort = () => fail('the dial was cancelled');
    const stagger = setInterval(() => untried.length > 0 && next(), STAGGER_MS);
    const endWait = waitClock.after(CONNECT_MS + STAGGER_MS * left.length, () =>
      fail(`no answer for ${CONNECT_MS} ms`),
    );
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted) onAbort();
    else next();
  });
}
