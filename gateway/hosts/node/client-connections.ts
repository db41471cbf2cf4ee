/**
 * Limits connections. WebSockets have a separate limit, so that agents and clients do not use up each other's
 * places. Among the other connections, a connection is proven when a request on it had a valid key. The unproven
 * connections of one address have a share of the places. If the address opens another connection, its oldest unproven
 * one is closed. So a client without a key cannot block agents, other addresses, or a client with a key behind the same
 * address. One key holder can prove a limited share of the places; further connections of the holder count as unproven.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIPv6, type Socket } from 'node:net';
import type { FastPathConnection } from './fast-path/fast-path-connection.ts';

/** Maximum connections other than WebSockets. Each uses a descriptor and, while idle, about 30 KiB. */
export const CONNECTIONS_MAX = 4_096;
/**
 * Maximum WebSockets: 10,000 tunnels, and more for gossip, circuits, and sockets that are about to be replaced.
 */
export const WEBSOCKETS_MAX = 12_288;
/**
 * Maximum unproven connections of one IPv4 address or one IPv6 network of 64 bits. A whole institution may share one
 * address.
 */
const ADDRESS_UNPROVEN_MAX = 1_024;
/** Maximum unproven connections in total. The other 512 places are reserved for clients with valid keys. */
const UNPROVEN_MAX = CONNECTIONS_MAX - 512;
/**
 * Maximum proven connections of one key holder: a quarter of all, and more than the nodes of a cluster need
 * concurrently.
 */
const HOLDER_PROVEN_MAX = 1_024;

/** Limits, which tests can lower. */
interface ConnectionLimits {
  max: number;
  webSockets?: number;
  unproven: number;
  unprovenPerAddress: number;
  provenPerHolder?: number;
}

const SHARES: ConnectionLimits = {
  max: CONNECTIONS_MAX,
  unproven: UNPROVEN_MAX,
  unprovenPerAddress: ADDRESS_UNPROVEN_MAX,
};

/** A request whose response is not complete. */
interface ActiveExchange {
  message: IncomingMessage;
  response: ServerResponse;
  /**
   * True if the gateway responds to this request only when there is work for its client. The client repeats such
   * requests, so a stopping gateway does not wait for them.
   */
  held: boolean;
}

export class ClientConnection {
  /** The TCP socket. A TLS connection has another socket on top of it. */
  readonly socket: Socket;
  readonly ends: string;
  readonly network: string;
  /** The fast-path parser of this connection; undefined: `node:http` reads the connection. */
  plain: FastPathConnection | undefined;
  /** The socket that carries HTTP. Undefined until a TLS handshake is complete. */
  http: Socket | undefined;
  /** Bytes that `http` had received when the connection last became idle. */
  idleAtBytes = 0;
  /**
   * Requests read by `node:http` whose responses are not complete, oldest first. `node:http` stops reading while the
   * client does not read its responses.
   */
  readonly answering: ActiveExchange[] = [];
  proven = false;
  /** Owner of the key that proved the connection. */
  holder: string | undefined;
  /** True if the connection has become a WebSocket. */
  upgraded = false;
  /** True if the data on the connection is not HTTP. */
  unreadable = false;
  /** True if the current request is the last one. Requests that the parser reads after it get no response. */
  last = false;

  get idle(): boolean {
    return !this.upgraded && this.answering.length === 0 && this.plain?.response === undefined;
  }

  /** True if a request has begun to arrive and its response is not complete. */
  get busy(): boolean {
    const { http, plain, answering } = this;
    if (this.upgraded || http === undefined || http.destroyed || http.writableEnded) return false;
    if (plain !== undefined) return plain.busy;
    return answering.length === 0 ? http.bytesRead > this.idleAtBytes : answering.some(({ held }) => !held);
  }

  /** Makes the response to the newest request announce the end of the connection, unless its head was already sent. */
  announceEnd(): void {
    const last = this.answering.at(-1)?.response;
    if (last !== undefined && !last.headersSent) last.setHeader('connection', 'close');
  }

  constructor(socket: Socket) {
    this.socket = socket;
    this.ends = endsOf(socket);
    this.network = networkOf(socket.remoteAddress ?? '');
  }
}

export class ClientConnections {
  readonly #shares: ConnectionLimits;
  /** Connections by id, oldest first; at most `max`, and `webSockets`. */
  readonly #all = new Map<string, ClientConnection>();
  /** Unproven connections by network, least recently used first. */
  readonly #unproven = new Map<string, Set<ClientConnection>>();
  /** Cache of `of`, because a socket's addresses are expensive to read for each request. */
  readonly #found = new WeakMap<Socket, ClientConnection>();
  #unprovenCount = 0;
  #webSockets = 0;
  /** Number of proven connections by holder; at most one entry per connection. */
  readonly #proven = new Map<string, number>();

  constructor(shares: ConnectionLimits = SHARES) {
    this.#shares = shares;
  }

  get size(): number {
    return this.#all.size;
  }

  get #isFull(): boolean {
    return this.#all.size - this.#webSockets >= this.#shares.max;
  }

  /** Admits a new connection, or closes it if there is no place. */
  add(socket: Socket): void {
    const connection = new ClientConnection(socket);
    const { unproven, unprovenPerAddress } = this.#shares;
    const own = this.#unproven.get(connection.network);
    if (own !== undefined && own.size >= unprovenPerAddress) this.#evictOldest(own);
    else if (this.#unprovenCount >= unproven || this.#isFull) this.#evictOldest(this.#largest());
    if (this.#isFull) this.#evictIdle();
    if (this.#isFull) return void socket.destroy();
    this.#all.set(connection.ends, connection);
    this.#setOf(connection.network).add(connection);
    this.#unprovenCount++;
    socket.on('close', () => this.#remove(connection));
  }

  /** Returns the connection of a TCP or TLS socket. */
  of(socket: Socket): ClientConnection | undefined {
    const found = this.#found.get(socket) ?? this.#all.get(endsOf(socket));
    if (found !== undefined) this.#found.set(socket, found);
    return found;
  }

  /** Call this when a request arrives. The connection then counts as the most recently used one of its network. */
  asks(connection: ClientConnection): void {
    if (connection.proven) return;
    const own = this.#unproven.get(connection.network);
    if (own?.delete(connection)) own.add(connection);
  }

  /** Call this when a response was sent, or when its client disconnected. */
  answered(connection: ClientConnection, { response }: Pick<ActiveExchange, 'response'>): void {
    const { answering, http } = connection;
    const at = answering.findIndex((one) => one.response === response);
    if (at >= 0) answering.splice(at, 1);
    if (answering.length === 0) connection.idleAtBytes = http?.bytesRead ?? 0;
  }

  /**
   * Call this before a connection becomes a WebSocket, which the agent's ticket proves. False: there are too many
   * WebSockets.
   */
  upgrade(connection: ClientConnection): boolean {
    if (this.#all.get(connection.ends) !== connection || connection.upgraded) return true;
    if (this.#webSockets >= (this.#shares.webSockets ?? WEBSOCKETS_MAX)) return false;
    this.prove(connection);
    connection.upgraded = true;
    this.#webSockets++;
    return true;
  }

  /** Call this after a valid key. @param holder owner of the key */
  prove(connection: ClientConnection, holder?: string): void {
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

  [Symbol.iterator](): IterableIterator<ClientConnection> {
    return this.#all.values();
  }

  #setOf(network: string): Set<ClientConnection> {
    const known = this.#unproven.get(network);
    if (known !== undefined) return known;
    const made = new Set<ClientConnection>();
    this.#unproven.set(network, made);
    return made;
  }

  /**
   * Returns the unproven connections of the network that has the most of them. Searches all networks, which is rare: it
   * is called only if no place is free.
   */
  #largest(): Set<ClientConnection> {
    let largest = new Set<ClientConnection>();
    for (const own of this.#unproven.values()) if (own.size > largest.size) largest = own;
    return largest;
  }

  #evictOldest(among: Set<ClientConnection>): void {
    const [oldest] = among;
    if (oldest !== undefined) this.#end(oldest);
  }

  /** Closes the oldest idle proven connection. Called if proven connections take all places. */
  #evictIdle(): void {
    for (const connection of this.#all.values()) {
      if (connection.idle) return this.#end(connection);
    }
  }

  #end(connection: ClientConnection): void {
    this.#remove(connection);
    connection.socket.destroy();
  }

  #remove(connection: ClientConnection): void {
    if (this.#all.get(connection.ends) !== connection) return;
    this.#all.delete(connection.ends);
    if (connection.upgraded) this.#webSockets--;
    if (!connection.proven) this.#forget(connection);
    if (connection.holder !== undefined) this.#release(connection.holder);
  }

  #release(holder: string): void {
    const left = (this.#proven.get(holder) ?? 1) - 1;
    if (left > 0) this.#proven.set(holder, left);
    else this.#proven.delete(holder);
  }

  #forget(connection: ClientConnection): void {
    const own = this.#unproven.get(connection.network);
    if (!own?.delete(connection)) return;
    this.#unprovenCount--;
    if (own.size === 0) this.#unproven.delete(connection.network);
  }
}

function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

/**
 * Returns an IPv4 address, even if it is written as IPv6, or the network of an IPv6 address, because a host owns all
 * addresses of its network (RFC 6177).
 */
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
