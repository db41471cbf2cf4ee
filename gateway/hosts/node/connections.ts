/**
 * Places for connections. A connection is proven when a request on it showed a valid key, or when the gateway accepted its WebSocket. The
 * unproven connections of one address have a share of the places; one more pushes out the oldest of them. So a client without a key cannot
 * keep out agents, other addresses, or a client with a key behind its own address. One person, or one key of no person, proves a share of
 * the places at most: what they open beyond it counts as a stranger's.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIPv6, type Socket } from 'node:net';
import type { PlainConnection } from './plain/plain-connection.ts';

/** Each takes a descriptor, and some 30 KiB while it is idle. */
export const CONNECTIONS_MAX = 4_096;
/** Unproven ones of one IPv4 address or one IPv6 network of 64 bits. A whole institution may stand behind one. */
const ADDRESS_UNPROVEN_MAX = 1_024;
/** Unproven ones in all: the other 512 are a reserve for agents and clients with valid keys. */
const UNPROVEN_MAX = CONNECTIONS_MAX - 512;
/** Proven ones of one person: a quarter of all places, and more than a cluster's nodes ask for at once. */
const HOLDER_PROVEN_MAX = 1_024;

/** How many connections, for tests that want fewer. */
interface Shares {
  max: number;
  unproven: number;
  unprovenPerAddress: number;
  provenPerHolder?: number;
}

const SHARES: Shares = { max: CONNECTIONS_MAX, unproven: UNPROVEN_MAX, unprovenPerAddress: ADDRESS_UNPROVEN_MAX };

/** A request and its answer, on their way. */
export interface Answering {
  message: IncomingMessage;
  response: ServerResponse;
}

/** One client's connection. */
export class Connection {
  /** TCP's. TLS has a socket of its own above it. */
  readonly socket: Socket;
  readonly ends: string;
  readonly network: string;
  /** Undefined: `node:http` reads it. */
  plain: PlainConnection | undefined;
  /** Requests of `node:http` without a complete answer, oldest first. It stops reading while the client does not take its answers. */
  readonly answering: Answering[] = [];
  proven = false;
  /** Whose key proved it. */
  holder: string | undefined;
  /** It is a WebSocket now. */
  upgraded = false;
  /** What came on it is not HTTP. */
  unreadable = false;
  /** The answer to a request that has come is its last one. What the parser reads behind that request is not answered. */
  last = false;

  get idle(): boolean {
    return !this.upgraded && this.answering.length === 0 && this.plain?.answering !== true;
  }

  constructor(socket: Socket) {
    this.socket = socket;
    this.ends = endsOf(socket);
    this.network = networkOf(socket.remoteAddress ?? '');
  }
}

export class Connections {
  readonly #shares: Shares;
  /** At most `max`; oldest first. */
  readonly #all = new Map<string, Connection>();
  /** The unproven ones by network, those that asked longest ago first. */
  readonly #unproven = new Map<string, Set<Connection>>();
  /** What `of` found: the ends of a socket are dear to ask for with each request. */
  readonly #found = new WeakMap<Socket, Connection>();
  #unprovenCount = 0;
  /** Proven connections by holder: at most one entry for each connection. */
  readonly #proven = new Map<string, number>();

  constructor(shares: Shares = SHARES) {
    this.#shares = shares;
  }

  get size(): number {
    return this.#all.size;
  }

  /** Gives a new connection a place, or closes it. */
  add(socket: Socket): void {
    const connection = new Connection(socket);
    const { max, unproven, unprovenPerAddress } = this.#shares;
    const own = this.#unproven.get(connection.network);
    if (own !== undefined && own.size >= unprovenPerAddress) this.#pushOut(own);
    else if (this.#unprovenCount >= unproven || this.#all.size >= max) this.#pushOut(this.#largest());
    if (this.#all.size >= max) this.#pushOutIdle();
    if (this.#all.size >= max) return void socket.destroy();
    this.#all.set(connection.ends, connection);
    this.#setOf(connection.network).add(connection);
    this.#unprovenCount++;
    socket.on('close', () => this.#remove(connection));
  }

  /** The connection of a socket, of TCP or TLS. */
  of(socket: Socket): Connection | undefined {
    const found = this.#found.get(socket) ?? this.#all.get(endsOf(socket));
    if (found !== undefined) this.#found.set(socket, found);
    return found;
  }

  /** Call it when a request comes: the connection is then the youngest of its network. */
  asks(connection: Connection): void {
    if (connection.proven) return;
    const own = this.#unproven.get(connection.network);
    if (own?.delete(connection)) own.add(connection);
  }

  /** Call it when an answer is out, or its client is gone. */
  answered(connection: Connection, { response }: Pick<Answering, 'response'>): void {
    const at = connection.answering.findIndex((one) => one.response === response);
    if (at >= 0) connection.answering.splice(at, 1);
  }

  /** Call it when a valid key or an agent's ticket was shown. @param holder whose key it is */
  prove(connection: Connection, holder?: string): void {
    if (connection.proven || this.#all.get(connection.ends) !== connection) return;
    if (holder !== undefined) {
      const proven = this.#proven.get(holder) ?? 0;
      if (proven >= (this.#shares.provenPerHolder ?? HOLDER_PROVEN_MAX)) return;
      this.#proven.set(holder, proven + 1);
      connection.holder = holder;
    }
    connection.proven = true;
    this.#forget(connection);
  }

  /** Of those that `node:http` has not: it knows its own. */
  closeIdlePlain(): void {
    for (const { socket, plain } of this.#all.values()) if (plain?.answering === false) socket.destroy();
  }

  closeAll(): void {
    for (const { socket } of this.#all.values()) socket.destroy();
  }

  #setOf(network: string): Set<Connection> {
    const known = this.#unproven.get(network);
    if (known !== undefined) return known;
    const made = new Set<Connection>();
    this.#unproven.set(network, made);
    return made;
  }

  /** Those of the network that has most unproven connections. Looks at all networks, but only where places are short. */
  #largest(): Set<Connection> {
    let largest = new Set<Connection>();
    for (const own of this.#unproven.values()) if (own.size > largest.size) largest = own;
    return largest;
  }

  #pushOut(among: Set<Connection>): void {
    const [oldest] = among;
    if (oldest !== undefined) this.#end(oldest);
  }

  /** All places have proven connections: closes the oldest that waits for its next request. */
  #pushOutIdle(): void {
    for (const connection of this.#all.values()) {
      if (connection.idle) return this.#end(connection);
    }
  }

  #end(connection: Connection): void {
    this.#remove(connection);
    connection.socket.destroy();
  }

  #remove(connection: Connection): void {
    if (this.#all.get(connection.ends) !== connection) return;
    this.#all.delete(connection.ends);
    if (!connection.proven) this.#forget(connection);
    if (connection.holder !== undefined) this.#release(connection.holder);
  }

  #release(holder: string): void {
    const left = (this.#proven.get(holder) ?? 1) - 1;
    if (left > 0) this.#proven.set(holder, left);
    else this.#proven.delete(holder);
  }

  #forget(connection: Connection): void {
    const own = this.#unproven.get(connection.network);
    if (!own?.delete(connection)) return;
    this.#unprovenCount--;
    if (own.size === 0) this.#unproven.delete(connection.network);
  }
}

function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

/** An IPv4 address, also one that is written as IPv6, or the network of an IPv6 address: a host has all of its addresses (RFC 6177). */
export function networkOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  if (!isIPv6(address)) return address;
  const [bare = ''] = address.split('%');
  const [front = '', back] = bare.split('::');
  const groups = front === '' ? [] : front.split(':');
  if (back === undefined) return groups.slice(0, 4).join(':');
  const behind = back === '' ? [] : back.split(':');
  const all = [...groups, ...Array<string>(8 - groups.length - behind.length).fill('0'), ...behind];
  return all.slice(0, 4).join(':');
}
