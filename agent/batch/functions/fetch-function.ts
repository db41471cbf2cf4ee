/** Gets the code and the secrets of a leased function from its gateway. */
import { createHash } from 'node:crypto';
import { contextMessage, FUNCTION_MAX_BYTES } from '../../../shared/batch/function-context.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import type { BatchGatewayClient } from '../batch-gateway-client.ts';
import { type FunctionOptions, readFunctionOptions } from './function-options.ts';
import type { FunctionCode } from './function-starter.ts';
import type { FunctionLease } from './leased-lines.ts';
import type { LoadedFunctions } from './loaded-functions.ts';
import type { CopyFile } from './staged-files.ts';

/** Maximum duration of a transfer of one piece of a packed environment. */
const PIECE_WITHIN_MS = 600_000;

interface FetchOptions {
  gateway: BatchGatewayClient;
  lease: FunctionLease;
  host: Pick<LoadedFunctions, 'stored' | 'store'>;
  signal: AbortSignal;
}

/** Returns the function of a lease, and stores it on this node. @throws Error */
export async function fetchFunction(options: FetchOptions): Promise<FunctionCode> {
  const { host, lease } = options;
  const { context, name, sha256, owner } = lease.function;
  // Check the context. If it were wrong, one owner's code would be stored under it, and would later run as another
  // owner's function.
  if (context !== hash(contextMessage(owner, sha256, name)))
    throw new Error('the context in the request does not belong to the function');
  const code = withEnvironment(await withSecrets(host.stored(context) ?? (await download(options)), options), options);
  host.store(code);
  return code;
}

async function download({ gateway, lease, signal }: FetchOptions): Promise<FunctionCode> {
  const { context, name, sha256, owner } = lease.function;
  const bytes = await gateway.functionCode(lease, signal);
  if (bytes.length > FUNCTION_MAX_BYTES || hash(bytes) !== sha256)
    throw new Error('the gateway sent a different function from the one it announced');
  const code = Buffer.from(bytes).toString('utf8');
  return { context, owner, code, options: optionsOf(code), ...(name === undefined ? {} : { name }) };
}

/** Reads the function's secrets for each lease, so that the next process gets values that the owner has replaced. */
async function withSecrets(code: FunctionCode, { gateway, lease, signal }: FetchOptions): Promise<FunctionCode> {
  if (code.options instanceof Error || (code.options.secrets ?? []).length === 0) return code;
  return { ...code, secrets: await gateway.functionSecrets(lease, signal) };
}

/** The pieces of the environment are read with a lease that is valid now. */
function withEnvironment(code: FunctionCode, { gateway, lease }: FetchOptions): FunctionCode {
  if (code.options instanceof Error) return code;
  const { environment: sha256, environmentFiles: pieces } = code.options;
  if (sha256 === undefined || pieces === undefined) return code;
  const copy: CopyFile = (id, path, most) =>
    gateway.file(lease, { id, path, most }, AbortSignal.timeout(PIECE_WITHIN_MS));
  return { ...code, environment: { sha256, pieces, copy } };
}

function optionsOf(code: string): FunctionOptions | Error {
  try {
    return readFunctionOptions(code);
  } catch (error) {
    return error instanceof Error ? error : new Error(errorText(error));
  }
}

function hash(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}
