/** The address of `GET /metrics`, and the key that protects it. */
import { readFileSync } from 'node:fs';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { listenAddress } from './listen-address.ts';
import { type SettingReader, valueSetting } from './setting.ts';

export interface MetricsConfig {
  host: string;
  port: number;
  /** Undefined: a key is created in STATE/metrics.key. */
  token: string | undefined;
}

/** Minimum length of a key: with a guessable key, anyone in the network could read the metrics. */
const TOKEN_MIN_CHARS = 16;

export const METRICS_SETTINGS = {
  address: valueSetting({
    flag: 'metrics',
    env: 'OTELA_METRICS',
    value: 'HOST:PORT',
    help: 'serve GET /metrics for Prometheus on this address, unencrypted; its key is in STATE/metrics.key. Without this flag, otela-agent metrics prints the metrics',
    parse: (text) => listenAddress('--metrics', text),
  }),
  token: valueSetting({
    flag: 'metrics-token-file',
    env: 'OTELA_METRICS_TOKEN_FILE',
    value: 'FILE',
    help: 'file with the key for --metrics, in place of STATE/metrics.key (chmod 600)',
    parse: readToken,
  }),
};

/** @throws UsageError */
export function metricsConfig(reader: SettingReader): MetricsConfig | undefined {
  if (reader.has(METRICS_SETTINGS.token) && !reader.has(METRICS_SETTINGS.address))
    throw new UsageError('--metrics-token-file needs --metrics HOST:PORT');
  const { address, token } = reader.read(METRICS_SETTINGS);
  return address && { ...address, token };
}

function readToken(file: string): string {
  let token: string;
  try {
    token = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw new UsageError(`--metrics-token-file: ${errorText(error)}`);
  }
  if (token.length < TOKEN_MIN_CHARS || token.length > 256 || /\s/.test(token))
    throw new UsageError(`--metrics-token-file: ${file} must contain one word of ${TOKEN_MIN_CHARS} to 256 characters`);
  return token;
}
