import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import * as z from 'zod';
import {
  FILES_MAX,
  type ManifestFile,
  type WeightsManifest,
  weightsManifestSchema,
} from '../../../shared/weights/weights-manifest.ts';
import { type Source, sourceText } from '../../../shared/weights/weights-source.ts';
import { asWeightsError } from '../weights-error.ts';
import type { BlobSource, ReadFrom } from './blob-source.ts';
import { bodyFromOffset, httpGet, responseText } from './http-get.ts';
import { onSource } from './remote-file-operations.ts';
import { manifestFile, sortedFiles } from './source-listing.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Maximum length of a list. The largest repositories list a few MiB of files. */
const LIST_MAX_BYTES = 32 * 1024 * 1024;
/** Timeout of reading the token. If a home directory on a shared file system hangs, no token is used. */
const TOKEN_WITHIN_MS = 10_000;

/** https://huggingface.co/docs/hub/api: GET /api/models/{repo}/revision/{revision}?blobs=true */
const modelSchema = z.object({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  private: z.boolean().optional(),
  gated: z.union([z.boolean(), z.string()]).optional(),
  siblings: z
    .array(
      z.object({
        rfilename: z.string(),
        size: z.number().int().nonnegative(),
        blobId: z.string(),
        lfs: z.object({ sha256: z.string(), size: z.number() }).nullish(),
      }),
    )
    .max(FILES_MAX),
});

/** A Hugging Face hub. HF_ENDPOINT, HF_TOKEN and HF_TOKEN_PATH have the same meaning as in Hugging Face's library. */
export class HubSource implements BlobSource {
  readonly #source: Source & { kind: 'hub' };
  readonly #env: Env;
  readonly #endpoint: string;
  #token: Promise<string | undefined> | undefined;

  constructor(source: Source & { kind: 'hub' }, env: Env) {
    this.#source = source;
    this.#env = env;
    this.#endpoint = (env.HF_ENDPOINT || 'https://huggingface.co').replace(/\/+$/, '');
  }

  async list(signal: AbortSignal): Promise<WeightsManifest> {
    const { repository, revision } = this.#source;
    const source = sourceText(this.#source);
    try {
      const path = `/api/models/${repository}/revision/${encodeURIComponent(revision)}?blobs=true`;
      const answer = await this.#get(path, signal);
      const model = modelSchema.parse(JSON.parse(await responseText(answer, LIST_MAX_BYTES)));
      const files = withoutRepeats(model.siblings).map(({ rfilename, size, blobId, lfs }) =>
        lfs
          ? manifestFile(source, { path: rfilename, size: lfs.size, sha256: lfs.sha256, stamp: blobId })
          : manifestFile(`hub:${repository}`, { path: rfilename, size, stamp: blobId, etag: blobId }),
      );
      const open = model.private === false && (model.gated ?? false) === false;
      return weightsManifestSchema.parse({
        v: 1,
        source,
        revision: model.sha,
        public: open,
        files: sortedFiles(files),
      });
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  /** Reads by commit hash and not by `main`, which may have moved since another node made the list. */
  async *read({ path }: ManifestFile, { revision, offset }: ReadFrom, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    try {
      const name = path.split('/').map(encodeURIComponent).join('/');
      const range = offset > 0 ? { range: `bytes=${offset}-` } : {};
      const { repository } = this.#source;
      yield* bodyFromOffset(await this.#get(`/${repository}/resolve/${revision}/${name}`, signal, range), offset);
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  async #get(path: string, signal: AbortSignal, headers: Record<string, string> = {}) {
    this.#token ??= tokenOf(this.#env);
    const token = await this.#token;
    const secret = token === undefined ? {} : { authorization: `Bearer ${token}` };
    return httpGet({ url: new URL(`${this.#endpoint}${path}`), secret, headers, env: this.#env, signal });
  }
}

/** Names of the same weights in older formats than safetensors, as Hugging Face's libraries use them. */
const REPEATS =
  /^(original\/.*|(pytorch_model[^/]*\.bin|consolidated[^/]*\.pth|tf_model[^/]*\.h5|flax_model[^/]*\.msgpack|rust_model\.ot))$/;
const SAFETENSORS = /^model(-\d+-of-\d+)?\.safetensors$/;

/**
 * Drops repeated weights if there are safetensors. Llama's repositories contain all weights twice, GPT-2's six times;
 * an engine reads only one of the formats.
 */
function withoutRepeats<T extends { rfilename: string }>(files: readonly T[]): T[] {
  if (!files.some(({ rfilename }) => SAFETENSORS.test(rfilename))) return [...files];
  return files.filter(({ rfilename }) => !REPEATS.test(rfilename));
}

async function tokenOf(env: Env): Promise<string | undefined> {
  const cache = env.XDG_CACHE_HOME || join(env.HOME ?? homedir(), '.cache');
  const place = env.HF_TOKEN_PATH || join(env.HF_HOME || join(cache, 'huggingface'), 'token');
  const read = () => readFile(place, 'utf8').catch(() => '');
  const text = env.HF_TOKEN || (await onSource(read, AbortSignal.timeout(TOKEN_WITHIN_MS)).catch(() => ''));
  const token = text.trim();
  return /^[\x21-\x7e]{1,1024}$/.test(token) ? token : undefined;
}
