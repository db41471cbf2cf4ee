/** The address of `GET /metrics`, and its key. */
import { readFileSync } from 'node:fs';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { listenAddress } from './ingress-config.ts';

export interface MetricsConfig {
  host: string;
  port: number;
  /** Undefined: a key is created, in STATE/metrics.key. */
  token: string | undefined;
}

/** A key that can be guessed opens the port to the whole network. */
const TOKEN_MIN_CHARS = 16;

/** Throws UsageError. */
export function metricsConfig(listen: string | undefined, tokenFile: string | undefined): MetricsConfig | undefined {
  if (listen === undefined) {
    if (tokenFile !== undefined) throw new UsageError('--metrics-token-file needs --metrics HOST:PORT');
    return undefined;
  }
  return { ...listenAddress('--metrics', listen), token: tokenFile === undefined ? undefined : read(tokenFile) };
}

function read(file: string): string {
  let token: string;
  try {
    token = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw new UsageError(`--metrics-token-file: ${errorText(error)}`);
  }
  if (token.length < TOKEN_MIN_CHARS || token.length > 256 || /\s/.test(token))
    throw new UsageError(`--metrics-token-file: ${file} holds no word of ${TOKEN_MIN_CHARS} to 256 characters`);
  return token;
}
