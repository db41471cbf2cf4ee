/**
 * Reads the function that a batch's lines name. The function's id is a hash of its content. Called when the batch is
 * checked.
 */
import { and, eq, inArray } from 'drizzle-orm';
import * as z from 'zod';
import type { BatchError } from '../../shared/batch/batch-line.ts';
import {
  contextMessage,
  FUNCTION_MAX_BYTES,
  FUNCTIONS_ENDPOINT,
  readFunctionName,
} from '../../shared/batch/function-context.ts';
import { environmentFilesSchema } from '../../shared/batch/function-files.ts';
import { declaredSecrets } from '../../shared/batch/function-secret.ts';
import { hex } from '../../shared/lattice/byte-codec.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { files } from '../files/file-tables.ts';
import { storeOf } from '../files/store-access.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import type { BatchFunction, BatchSpec } from './batch-spec.ts';
import { secretNames } from './function-secrets.ts';

/**
 * @returns the function, or the error with which the batch fails; undefined: the lines are for engines
 * @throws ApiError, FileStoreError if the database or the store is unavailable
 */
export async function functionOf(
  env: Env,
  { owner, endpoint }: Pick<BatchSpec, 'owner' | 'endpoint'>,
  model: string | undefined,
  named: readonly string[] = [],
): Promise<BatchFunction | BatchError | undefined> {
  if (endpoint !== FUNCTIONS_ENDPOINT) return undefined;
  const asks = readFunctionName(model ?? '');
  if (asks === undefined) return failure('The model of a function must be function:FILE or function:FILE:NAME.');
  const [row] = await queryOrUnavailable(
    database(env)
      .select()
      .from(files)
      .where(and(eq(files.id, asks.file), eq(files.owner, owner))),
  );
  if (row === undefined) return failure(`There is no file ${asks.file} here.`);
  if (row.purpose !== 'user_data') return failure("The file of a function must have the purpose 'user_data'.");
  if (row.bytes > FUNCTION_MAX_BYTES)
    return failure(`The file of a function must have at most ${FUNCTION_MAX_BYTES} bytes.`);
  const content = await storeOf(env).read(asks.file);
  const code = content === undefined ? undefined : await textOf(content);
  if (code === undefined) return failure('The file of the function was deleted, or is not UTF-8.');
  const sha256 = hash(code);
  const context = hash(contextMessage(owner, sha256, asks.name));
  const bundle = tryParseJson(code);
  const secrets = declaredSecrets(bundle);
  const stored = new Set((secrets.length === 0 ? [] : await secretNames(env, owner)).map(({ name }) => name));
  const missing = secrets.find((name) => !stored.has(name));
  if (missing !== undefined)
    return failure(`The function declares the secret ${missing}, which is not stored: otela secrets set ${missing}.`);
  const pieces = bundleSchema.safeParse(bundle).data?.environment_files ?? [];
  const read = [...new Set([...named, ...pieces])];
  const unknown = await unknownFile(env, owner, read);
  if (unknown !== undefined)
    return {
      ...failure(`There is no file ${unknown} with the purpose 'user_data' or 'batch_output' here.`),
      param: 'body.files',
    };
  const found = {
    context,
    sha256,
    code,
    ...(secrets.length > 0 && { secrets }),
    ...(read.length > 0 && { files: read }),
  };
  return asks.name === undefined ? found : { ...found, name: asks.name };
}

/** The member of a bundle that names files. A bundle with an invalid one reads none, and nodes refuse it. */
const bundleSchema = z.object({ environment_files: environmentFilesSchema });

/** Maximum ids in one query: D1 allows 100 parameters. */
const IDS_PER_QUERY = 90;

/** The first of these files that the owner has neither uploaded as `user_data` nor got from a batch. */
async function unknownFile(env: Env, owner: string, ids: readonly string[]): Promise<string | undefined> {
  for (let at = 0; at < ids.length; at += IDS_PER_QUERY) {
    const some = ids.slice(at, at + IDS_PER_QUERY);
    const rows = await queryOrUnavailable(
      database(env)
        .select({ id: files.id })
        .from(files)
        .where(
          and(inArray(files.id, some), eq(files.owner, owner), inArray(files.purpose, ['user_data', 'batch_output'])),
        ),
    );
    const known = new Set(rows.map(({ id }) => id));
    const missing = some.find((id) => !known.has(id));
    if (missing !== undefined) return missing;
  }
  return undefined;
}

function failure(message: string): BatchError {
  return { code: 'model_not_found', message, param: 'body.model', line: 1 };
}

function hash(text: string): string {
  return hex(workerdCrypto.sha256(new TextEncoder().encode(text)));
}

async function textOf(content: AsyncIterable<Uint8Array>): Promise<string | undefined> {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });
  let [text, bytes] = ['', 0];
  try {
    for await (const piece of content) {
      bytes += piece.length;
      if (bytes > FUNCTION_MAX_BYTES) return undefined;
      text += decoder.decode(piece, { stream: true });
    }
    return text + decoder.decode();
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}
