import { GatewayClient, GatewayRefusalError, GatewayUnreachableError } from '../../node/gateway-client.ts';
import { readKeyFile } from '../../node/private-file.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { SchedulerError } from '../errors.ts';

/** The JSON API of a gateway. */
export interface PlannerGateway {
  url: string;
  get(path: string): Promise<unknown>;
  put(path: string, body: unknown): Promise<void>;
}

/** The gateway answered with an error status. */
export class GatewayRefusal extends SchedulerError {
  /** HTTP status. */
  readonly status: number;
  constructor(status: number, message: string) {
    super('gateway', message);
    this.status = status;
  }
}

/**
 * Opens the gateway at `url`. `keyFile` contains an operator's key. Only GET /v1/registry may work without it, if the
 * operator opened that route.
 */
export function gatewayFrom(url: string, keyFile: string | undefined, fetcher: typeof fetch = fetch): PlannerGateway {
  const key = keyFile === undefined ? undefined : readKey(keyFile);
  const client = new GatewayClient({ url: parseUrl(url).href, key, fetch: fetcher });
  return {
    url: client.origin,
    get: (path) => client.get(path).catch(rethrow),
    put: (path, body) => client.put(path, body).catch(rethrow),
  };
}

function rethrow(error: unknown): never {
  if (error instanceof GatewayRefusalError) {
    const isKeyWrong = error.status === 401 || error.status === 403;
    const hint = isKeyWrong ? ' (give an operator’s key with --key-file)' : '';
    throw new GatewayRefusal(error.status, `${error.message}${hint}`);
  }
  throw error instanceof GatewayUnreachableError
    ? new SchedulerError('gateway', error.message, { cause: error.cause })
    : error;
}

function parseUrl(url: string): URL {
  try {
    const parsed = new URL(url);
    if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') throw new Error('not an http or https URL');
    return parsed;
  } catch (cause) {
    throw new SchedulerError(
      'usage',
      `--gateway must be a URL such as https://gateway.example, not ${JSON.stringify(url.slice(0, 200))}`,
      { cause },
    );
  }
}

function readKey(file: string): string {
  try {
    return readKeyFile(file);
  } catch (cause) {
    throw new SchedulerError('usage', `--key-file ${file}: ${errorText(cause)}`, { cause });
  }
}
