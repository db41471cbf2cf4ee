/** The port that clients and agents see. It knows bytes only: HTTP, WebSockets and their limits are workerd's, but for what an inlet takes. */
import { createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, Server as TlsServer } from 'node:tls';
import type { Inlet } from './inlet.ts';
import type { Outlets } from './outlet.ts';
import { Pause } from './pause.ts';
import { receive } from './reception.ts';
import { refuse, splice, WRITE_BUFFER_BYTES } from './splice.ts';
import type { Traffic } from './traffic.ts';

/** Each takes two descriptors here and up to 160 KiB when both sides stall. */
export const CONNECTIONS_MAX = 4_096;
/** So many more clients at a time are told that there are too many; what comes on top is closed without a word. */
const REFUSALS_MAX = 512;
/** A peer that went away without a word (power, cable) is noticed by TCP after this and a few probes. */
const KEEP_ALIVE_MS = 30_000;
const HANDSHAKE_MS = 10_000;
/** Nobody asks and nothing moved for so long: nobody is being answered, as far as bytes can tell. */
const QUIET_MS = 1_000;

export interface TlsMaterial {
  /** PEM; the certificate first, then its chain. */
  cert: Buffer;
  key: Buffer;
}

interface PublicSocketOptions {
  /** workerd's Unix socket. */
  path: string;
  tls?: TlsMaterial | undefined;
  /** Where bodies of answers may come from; without them all is workerd's. */
  outlets?: Outlets;
  /** Where small requests may go, if there are outlets; without it all go through workerd's HTTP. */
  inlet?: Inlet | undefined;
  /** Default 4096. */
  connectionsMax?: number;
}

export class PublicSocket {
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  /** What TLS lies upon, by its two ends: none without it, else as many as there are connections. */
  readonly #below = new Map<string, Socket>();
  readonly #traffic: Traffic = { chunks: 0, asking: 0 };
  readonly #outlets: Outlets | undefined;
  readonly #inlet: Inlet | undefined;

  /** Throws when the TLS material does not fit together. */
  constructor({ path, tls, outlets, inlet, connectionsMax = CONNECTIONS_MAX }: PublicSocketOptions) {
    this.#outlets = outlets;
    this.#inlet = inlet;
    // Without allowHalfOpen Node answers a FIN with a FIN before anybody could turn it into a hang-up.
    const options = {
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
      highWaterMark: WRITE_BUFFER_BYTES,
    };
    const accept = (client: Socket) => this.#accept(client, path, connectionsMax);
    this.#server =
      tls === undefined
        ? createServer(options, accept)
        : createTlsServer({ ...options, ...tls, ALPNProtocols: ['http/1.1'], handshakeTimeout: HANDSHAKE_MS }, accept);
    this.#server.maxConnections = connectionsMax + REFUSALS_MAX;
    this.#server.on('tlsClientError', (_error, client: Socket) => client.destroy());
    if (tls !== undefined) this.#server.on('connection', (below: Socket) => this.#keep(below));
  }

  /** Resolves with the port; rejects as `net.Server` does (EADDRINUSE, EACCES, …). */
  listen(port: number, host: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.removeListener('error', reject);
        // Running out of descriptors is reported here and is no reason to end.
        this.#server.on('error', (error) => console.error(`public socket: ${error.message}`));
        const address = this.#server.address();
        resolve(typeof address === 'object' && address !== null ? address.port : port);
      });
    });
  }

  /** For connections from now on; those that stand keep their certificate. Throws and changes nothing when it is no pair. */
  reload(tls: TlsMaterial): void {
    if (this.#server instanceof TlsServer) this.#server.setSecureContext(tls);
  }

  #keep(below: Socket): void {
    const ends = endsOf(below);
    this.#below.set(ends, below);
    below.on('close', () => {
      if (this.#below.get(ends) === below) this.#below.delete(ends);
    });
  }

  #accept(client: Socket, path: string, connectionsMax: number): void {
    this.#clients.add(client);
    client.on('close', () => this.#clients.delete(client));
    if (this.#clients.size > connectionsMax) refuse(client, 'Too many connections.');
    else this.#admit(client, path);
  }

  #admit(client: Socket, path: string): void {
    const [traffic, inlet, outlets] = [this.#traffic, this.#inlet, this.#outlets];
    const below = this.#server instanceof TlsServer ? this.#below.get(endsOf(client)) : undefined;
    const pause = new Pause(client, below ?? client);
    if (outlets === undefined || inlet === undefined) splice(client, { path, traffic, pause, outlets });
    else receive(client, { path, traffic, pause, inlet, outlets });
  }

  /** Takes no more connections, lets those that are being answered finish for `drainMs` at most, ends all. Idempotent. */
  async close(drainMs: number): Promise<void> {
    this.#server.close();
    const deadline = Date.now() + drainMs;
    let seen = -1;
    const moves = () => seen !== this.#traffic.chunks || this.#traffic.asking > 0;
    while (moves() && Date.now() < deadline && this.#clients.size > 0) {
      seen = this.#traffic.chunks;
      await new Promise((resolve) => setTimeout(resolve, Math.min(QUIET_MS, deadline - Date.now())));
    }
    for (const client of this.#clients) client.destroy();
  }
}

function endsOf({ remoteAddress, remotePort, localAddress }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}
