/** A client of a gateway's admin API with an operator's key. */
import { readFileSync } from 'node:fs';
import { Agent, fetch } from 'undici';
import { GatewayClient } from '../../node/gateway-client.ts';
import { readKeyFile } from '../../node/private-file.ts';
import { errorLine, FactoryError } from '../factory-error.ts';

interface AdminApiOptions {
  gateway: string;
  keyFile: string;
  caFile?: string | undefined;
}

/** @throws FactoryError `config` if the key's file is missing, readable by others, or not a key */
export function adminApi({ gateway, keyFile, caFile }: AdminApiOptions): GatewayClient {
  const dispatcher = new Agent(caFile === undefined ? {} : { connect: { ca: readFileSync(caFile) } });
  readKey(keyFile); // A key that is missing is an error of the configuration, at the start.
  return new GatewayClient({
    url: gateway,
    key: () => readKey(keyFile),
    fetch: (url, init) => fetch(url, { ...init, dispatcher }),
  });
}

function readKey(path: string): string {
  try {
    return readKeyFile(path);
  } catch (cause) {
    throw new FactoryError('config', `the operator's key ${path}: ${errorLine(cause)}`, { cause });
  }
}
