import { join } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import type { MetricsConfig } from '../config/metrics-config.ts';
import type { StateDir } from '../host/state-directory.ts';
import { IngressKey } from '../ingress/ingress-key.ts';
import { MetricsServer } from '../observe/metrics-server.ts';

const KEY_FILE = 'metrics.key';

interface MetricsContext {
  state: StateDir;
  page(): string;
  log(line: string): void;
}

/** Undefined if no port is configured. @throws UsageError if the port cannot be opened */
export async function openMetrics(
  config: MetricsConfig | undefined,
  { state, page, log }: MetricsContext,
): Promise<MetricsServer | undefined> {
  if (config === undefined) return undefined;
  const { host, port, token } = config;
  const key = token === undefined ? IngressKey.make(state.path, KEY_FILE) : IngressKey.of(token);
  const server = new MetricsServer({ host, port, key, page });
  try {
    const url = await server.open();
    log(`metrics ${url}${token === undefined ? `, its key is in ${join(state.path, KEY_FILE)}` : ''}`);
    return server;
  } catch (error) {
    throw new UsageError(`--metrics: ${errorText(error)}`);
  }
}
