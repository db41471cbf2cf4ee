import { createServer, type Server } from 'node:http';
import { isIP } from 'node:net';
import { CONTENT_TYPE } from '../../shared/metrics/prometheus-exposition.ts';
import { errorBody, toApiError } from '../../shared/openai/api-errors.ts';
import { listenError } from '../../shared/terminal/listen-error.ts';
import type { IngressKey } from '../ingress/ingress-key.ts';
import { UnauthenticatedLimit } from '../ingress/unauthenticated-limit.ts';

/** Maximum number of connections: enough for one or two Prometheus servers. */
const CONNECTIONS_MAX = 16;
const TIMEOUT_MS = 10_000;

interface MetricsServerOptions {
  host: string;
  /** Port; 0: any free one. */
  port: number;
  key: IngressKey;
  page(): string;
}

/** Serves `GET /metrics`, only to clients with the key, even on this machine. */
export class MetricsServer {
  readonly #options: MetricsServerOptions;
  readonly #server: Server;
  readonly #unauthenticated = new UnauthenticatedLimit();

  constructor(options: MetricsServerOptions) {
    this.#options = options;
    this.#server = createServer({ headersTimeout: TIMEOUT_MS, requestTimeout: TIMEOUT_MS }, (request, response) => {
      response.on('error', () => {});
      try {
        options.key.require(request.headers);
        this.#unauthenticated.remove(request.socket);
        const found = request.method === 'GET' && request.url?.split('?')[0] === '/metrics';
        if (!found) return void response.writeHead(404).end();
        response.writeHead(200, { 'content-type': CONTENT_TYPE, 'cache-control': 'no-store' }).end(options.page());
      } catch (error) {
        const api = toApiError(error);
        response.writeHead(api.status, { ...api.headers, 'content-type': 'application/json', connection: 'close' });
        response.end(errorBody(api));
      }
    });
    this.#server.maxConnections = CONNECTIONS_MAX;
    this.#server.on('connection', (socket) => this.#unauthenticated.add(socket));
  }

  /** Resolves with the page's URL. Rejects if the address cannot be used. */
  open(): Promise<string> {
    const { host, port } = this.#options;
    return new Promise((resolve, reject) => {
      const refused = (error: Error) => reject(listenError(error, { host, port }));
      this.#server.once('error', refused);
      this.#server.listen(port, host, () => {
        this.#server.off('error', refused);
        this.#server.on('error', () => {});
        const address = this.#server.address();
        const taken = typeof address === 'object' && address !== null ? address.port : port;
        resolve(`http://${isIP(host) === 6 ? `[${host}]` : host}:${taken}/metrics`);
      });
    });
  }

  /** Closes the server. Idempotent. */
  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
