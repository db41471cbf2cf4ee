import { connect, type Socket } from 'node:net';
import type { Credentials, Proven } from './accept.ts';
import type { Peer } from './channel.ts';
import { ChannelError } from './error.ts';
import { ADDRESSES_MAX, CONNECT_MS, HANDSHAKE_MS, TICKET_MAX_BYTES } from './limits.ts';
import { LENGTH_BYTES } from './messages.ts';
import { preface } from './preface.ts';
import { provenKey, secureClient } from './secure.ts';
import { eventOf, readExactly, within } from './wait.ts';

export interface DialOptions {
  own: Credentials;
  /** Host:port, tried one after the other. */
  addresses: readonly string[];
  /** Undefined for an address that somebody gave without a session: whoever has a good ticket is taken. */
  session?: string;
  /** That session's ticket where it is here already; it is verified as any. */
  ticket?: Uint8Array;
  /** Verifies a ticket. Throws where it is not good here. */
  openTicket(ticket: Uint8Array): Peer;
  signal?: AbortSignal;
}

/** `10.0.0.1:7` or `[fe80::1]:7`; undefined for anything else. */
export function parseAddress(text: string): { host: string; port: number } | undefined {
  const match = /^(?:\[([0-9a-fA-F:.]{2,45})\]|([A-Za-z0-9._-]{1,253})):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  return host === undefined || port < 1 || port > 65_535 ? undefined : { host, port };
}

/** Throws ChannelError: of the address that came furthest. */
export async function dialChannel(options: DialOptions): Promise<Proven> {
  let trouble = new ChannelError('unreachable', 'no address');
  for (const address of options.addresses.slice(0, ADDRESSES_MAX)) {
    const at = parseAddress(address);
    if (at === undefined || options.signal?.aborted) continue;
    try {
      return await dialAddress(at, options);
    } catch (error) {
      if (!(error instanceof ChannelError)) throw error;
      if (error.code !== 'unreachable' || trouble.code === 'unreachable') trouble = error;
    }
  }
  throw trouble;
}

async function dialAddress(at: { host: string; port: number }, options: DialOptions): Promise<Proven> {
  const socket = connect({ host: at.host, port: at.port, noDelay: true });
  const abort = () => socket.destroy(new ChannelError('broken', 'given up'));
  options.signal?.addEventListener('abort', abort, { once: true });
  try {
    await within(socket, CONNECT_MS, 'unreachable', () => eventOf(socket, 'connect')).catch((error: unknown) => {
      const message = `${at.host}:${at.port}: ${error instanceof Error ? error.message : String(error)}`;
      throw new ChannelError('unreachable', message, { cause: error });
    });
    return await within(socket, HANDSHAKE_MS, 'timeout', () => handshake(socket, options));
  } finally {
    options.signal?.removeEventListener('abort', abort);
  }
}

async function handshake(socket: Socket, options: DialOptions): Promise<Proven> {
  socket.write(preface({ ticket: options.own.ticket, known: options.ticket !== undefined }));
  const secured = secureClient(socket, options.own.context);
  try {
    await eventOf(secured, 'secureConnect');
    const key = provenKey(secured);
    const length = (await readExactly(secured, LENGTH_BYTES)).readUInt32BE();
    if (length > TICKET_MAX_BYTES) throw new ChannelError('stranger', `a ticket of ${length} bytes`);
    const shown = length === 0 ? options.ticket : await readExactly(secured, length);
    if (shown === undefined) throw new ChannelError('stranger', 'no ticket');
    const peer = opened(shown, options);
    if (key === undefined || Buffer.compare(key, peer.sessionKey) !== 0)
      throw new ChannelError('wrong_key', `the other end does not hold the key of ${peer.session}`);
    if (options.session !== undefined && options.session !== peer.session)
      throw new ChannelError('wrong_key', `${peer.session} answers where ${options.session} was dialled`);
    return { socket: secured, peer };
  } catch (error) {
    secured.destroy();
    throw error;
  }
}

function opened(ticket: Uint8Array, options: DialOptions): Peer {
  try {
    return options.openTicket(ticket);
  } catch (error) {
    throw new ChannelError('stranger', 'the other end has no good ticket', { cause: error });
  }
}
