/**
 * The HTTP server on port 80 beside a gateway with its own certificate. It answers the challenges of the certificate
 * authority (RFC 8555 §8.3) and sends browsers to HTTPS.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { ApiError, errorBody } from '../../../../shared/openai/api-errors.ts';
import { listenError } from '../../../../shared/terminal/listen-error.ts';
import { CommandError } from '../../../command-error.ts';

const CHALLENGE_PATH = '/.well-known/acme-challenge/';
/** Challenges at the same time: one for each name of the certificate, and those of an order that was given up. */
const CHALLENGES_MAX = 100;
/** A challenge needs one short request. */
const REQUEST_MS = 10_000;
/** Pause between two looks for connections with a late request. */
const REQUEST_CHECK_MS = 2_000;
const HEAD_MAX_BYTES = 8 * 1024;
const CONNECTIONS_MAX = 256;
/** A path that can be written into a Location header. */
const PATH = /^\/[\w.~!$&'()*+,;=:@%/?-]{0,2000}$/;
/** Headers that contain a secret. Their request was sent without encryption, and must fail visibly. */
const SECRET_HEADERS = ['authorization', 'x-api-key', 'cookie'] as const;

export class ChallengeServer {
  readonly #server: Server;
  readonly #challenges = new Map<string, string>();

  /** @param origin the gateway's https URL, without a path */
  constructor(origin: string) {
    const options = {
      maxHeaderSize: HEAD_MAX_BYTES,
      headersTimeout: REQUEST_MS,
      requestTimeout: REQUEST_MS,
      connectionsCheckingInterval: REQUEST_CHECK_MS,
    };
    this.#server = createServer(options, (request, response) => this.#answer(origin, request, response));
    this.#server.maxConnections = CONNECTIONS_MAX;
  }

  /** Returns the port. @throws CommandError */
  async listen(port: number, host: string): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once('error', reject);
    this.#server.listen({ port, host }, resolve);
    await promise.catch((cause: unknown) => {
      const why = listenError(cause, { host, port }).message;
      throw new CommandError(`${why}. The certificate authority asks for --domain on this port (--http-port)`, {
        cause,
      });
    });
    // Without a listener, an error of a later connection would end the process.
    this.#server.on('error', (error) => console.error(`--http-port: ${error.message}`));
    // A gateway that cannot start must end.
    this.#server.unref();
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : port;
  }

  add(token: string, keyAuthorization: string): void {
    if (this.#challenges.size >= CHALLENGES_MAX) this.#challenges.clear();
    this.#challenges.set(token, keyAuthorization);
  }

  remove(token: string): void {
    this.#challenges.delete(token);
  }

  #answer(origin: string, request: IncomingMessage, response: ServerResponse): void {
    const { url = '', method, headers } = request;
    response.setHeader('connection', 'close');
    if (url.startsWith(CHALLENGE_PATH)) {
      const found = this.#challenges.get(url.slice(CHALLENGE_PATH.length));
      response.writeHead(found === undefined ? 404 : 200, { 'content-type': 'application/octet-stream' });
      response.end(found);
      return;
    }
    const isBrowser = method === 'GET' || method === 'HEAD';
    if (isBrowser && PATH.test(url) && SECRET_HEADERS.every((name) => headers[name] === undefined)) {
      response.writeHead(308, { location: origin + url }).end();
      return;
    }
    // A redirect would hide that the key was sent in plain text.
    const error = new ApiError('permission_denied', `Use ${origin}: this request was not encrypted.`);
    response.writeHead(error.status, { 'content-type': 'application/json' }).end(errorBody(error));
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
  }
}
