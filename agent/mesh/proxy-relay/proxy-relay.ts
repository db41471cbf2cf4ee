import { connect, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { errorText } from '../../../shared/text/error-text.ts';
import { proxyFor } from '../../host/proxy-variables.ts';
import { authority, throughProxy } from '../../tunnel/open-websocket.ts';
import { verifyRelayCredentials } from './relay-credentials.ts';

/** Maximum size of a request line and its headers. */
const HEAD_MAX_BYTES = 4 * 1024;

const CONNECT_MS = 10_000;

/**
 * Maximum number of relayed connections. Each is a socket to the node and one to the gateway, and holds the bytes
 * between them that a slow reader has not taken (two high-water marks).
 */
const RELAYED_MAX = 512;

/**
 * Maximum number of connections that have not shown credentials. One more closes the oldest, so that unauthenticated
 * peers cannot keep others away.
 */
const UNPROVEN_MAX = 64;
const HEAD_MS = 5_000;

/**
 * A connection that carries nothing for this long ends. A tunnel is pinged every 15 s, so its path must have been lost.
 */
const IDLE_MS = 120_000;

/** Maximum bytes of an admission, which is one HTTPS request with a few certificates in each direction. */
const ADMISSION_BYTES = 64 * 1024;
const ADMISSION_MS = 30_000;
const ADMISSIONS_MAX = 16;

interface ProxyRelayOptions {
  /** The only destinations to which the relay connects. */
  gateways: readonly URL[];
  /** This agent's join tokens. The relay serves agents that prove to know one of them. */
  tokens: readonly string[];
  /** True if all traffic is relayed (`--offer-relay`); otherwise only admissions are. */
  offered: boolean;
  env: NodeJS.ProcessEnv;
  /** Opens a stream to a gateway. Absent: a connection over the network. */
  open?(gateway: URL): Promise<Duplex> | Duplex;
  log(line: string): void;
}

/**
 * Passes bytes between nodes without egress and the gateways of this agent's configuration. The node and the gateway
 * speak TLS with each other.
 */
export class ProxyRelay {
  readonly #options: ProxyRelayOptions;
  /** Connections without credentials yet, oldest first. At most UNPROVEN_MAX. */
  readonly #unproven = new Set<Socket>();
  /** Relayed connections. At most RELAYED_MAX; without `--offer-relay` at most ADMISSIONS_MAX. */
  readonly #open = new Set<Socket>();
  #closed = false;

  constructor(options: ProxyRelayOptions) {
    this.#options = options;
  }

  get open(): number {
    return this.#open.size;
  }

  /**
   * Handles a connection that begins with an HTTP CONNECT, which is still unread. Sends nothing to unauthenticated
   * peers.
   */
  async take(socket: Socket): Promise<void> {
    if (this.#closed) return void socket.destroy();
    socket.on('error', () => socket.destroy());
    try {
      const gateway = await this.#prove(socket);
      const max = this.#options.offered ? RELAYED_MAX : ADMISSIONS_MAX;
      if (gateway === undefined || this.#open.size >= max) return void socket.destroy();
      this.#open.add(socket);
      socket.on('close', () => this.#open.delete(socket));
      socket.setTimeout(CONNECT_MS, () => socket.destroy());
      this.#join(socket, await (this.#options.open?.(gateway) ?? this.#connect(gateway)));
    } catch (error) {
      this.#options.log(`relay: ${errorText(error)}`);
      socket.destroy();
    }
  }

  async #prove(socket: Socket): Promise<URL | undefined> {
    this.#unproven.add(socket);
    const [oldest] = this.#unproven;
    if (this.#unproven.size > UNPROVEN_MAX) oldest?.destroy();
    const timer = setTimeout(() => socket.destroy(), HEAD_MS);
    try {
      return await this.#gateway(socket);
    } catch {
      return undefined; // errors of unauthenticated peers are not logged
    } finally {
      clearTimeout(timer);
      this.#unproven.delete(socket);
    }
  }

  /** The gateway that the peer asks for, if it is configured here and the peer may use it. */
  async #gateway(socket: Socket): Promise<URL | undefined> {
    const head = await readHead(socket);
    const target = /^CONNECT (\S{1,300}) HTTP\/1\.1\r\n/.exec(head)?.[1];
    const pass = /\r\nproxy-authorization:[ \t]*([^\r\n]+)\r\n/i.exec(head)?.[1]?.trim();
    if (target === undefined || !verifyRelayCredentials(pass, target, this.#options.tokens)) return undefined;
    return this.#options.gateways.find((url) => authority(url) === target);
  }

  async #connect(gateway: URL): Promise<Socket> {
    const proxy = proxyFor(gateway, this.#options.env);
    if (proxy !== undefined) return throughProxy(proxy, gateway);
    const { hostname, port, protocol } = gateway;
    const secure = protocol === 'https:' || protocol === 'wss:';
    const socket = connect({ host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || (secure ? 443 : 80) });
    return new Promise((resolve, reject) => {
      socket.setTimeout(CONNECT_MS, () => socket.destroy(new Error(`${gateway.host} does not answer`)));
      socket.once('error', reject).once('connect', () => resolve(socket.off('error', reject)));
    });
  }

  #join(node: Socket, gateway: Duplex): void {
    if (node.destroyed || this.#closed) return void gateway.destroy();
    const end = () => {
      node.destroy();
      gateway.destroy();
    };
    for (const socket of [node, gateway]) {
      socket.on('error', end).on('close', end);
      if (!(socket instanceof Socket)) continue; // the node's socket has the time limit
      socket.setNoDelay(true);
      socket.setTimeout(this.#options.offered ? IDLE_MS : ADMISSION_MS, end);
    }
    if (!this.#options.offered) limit(node, gateway, end);
    node.write('HTTP/1.1 200 OK\r\n\r\n');
    node.pipe(gateway);
    gateway.pipe(node);
  }

  /** Closes all connections. Idempotent. */
  close(): void {
    this.#closed = true;
    for (const socket of [...this.#unproven, ...this.#open]) socket.destroy();
  }
}

/** Ends both sockets after ADMISSION_MS or ADMISSION_BYTES, which suffice for an admission. */
function limit(node: Socket, gateway: Duplex, end: () => void): void {
  const timer = setTimeout(end, ADMISSION_MS);
  node.on('close', () => clearTimeout(timer));
  let bytes = 0;
  const count = (piece: Buffer) => {
    bytes += piece.length;
    if (bytes > ADMISSION_BYTES) end();
  };
  node.on('data', count);
  gateway.on('data', count);
}

/**
 * Reads up to and including the empty line. Bytes after it stay in the socket. Rejects if the empty line does not
 * arrive.
 */
function readHead(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let head = Buffer.alloc(0);
    const done = (act: () => void) => {
      socket.off('readable', look).off('close', onClose);
      act();
    };
    const look = () => {
      for (let piece: unknown = socket.read(); Buffer.isBuffer(piece); piece = socket.read()) {
        head = Buffer.concat([head, piece]);
        const end = head.indexOf('\r\n\r\n');
        if (end >= 0 && end < HEAD_MAX_BYTES) {
          if (head.length > end + 4) socket.unshift(head.subarray(end + 4));
          return done(() => resolve(head.toString('latin1', 0, end + 4)));
        }
        if (head.length > HEAD_MAX_BYTES) return done(() => reject(new Error('the HTTP head is too long')));
      }
    };
    const onClose = () => done(() => reject(new Error('the connection ended inside the HTTP head')));
    socket.on('readable', look).on('close', onClose);
    look();
  });
}
