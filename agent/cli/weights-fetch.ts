/** `otela-agent weights fetch`: fetches a repository of a hub into the Hugging Face cache of this user. */
import { join } from 'node:path';
import { EXIT_DONE, UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { parseSource } from '../../shared/weights/weights-source.ts';
import { EXIT_ENGINE } from '../config/exit-codes.ts';
import type { Env } from '../config/setting.ts';
import { fetchToCache, isUnreachable } from '../weights/fetch-to-cache.ts';
import { openSource } from '../weights/sources/open-source.ts';
import type { CommandContext } from './command-context.ts';
import { bytesText } from './progress-bar.ts';

/** EX_NOHOST of sysexits.h: this machine has no way to the hub. `otela up` then tries another machine. */
export const EXIT_NO_HUB = 68;
/** Interval between two lines of progress. */
const LINE_MS = 5_000;

/** @param source text of a hub source */
export async function fetchWeights(source: string, { env, io }: CommandContext): Promise<number> {
  const parsed = parseSource(source);
  if (parsed?.kind !== 'hub') throw new UsageError('weights fetch reads from a hub: ORG/NAME[@REVISION]');
  let shownMs = Number.NEGATIVE_INFINITY;
  const onProgress = (bytes: number, total: number) => {
    const now = performance.now();
    if (now - shownMs < LINE_MS && bytes < total) return;
    shownMs = now;
    io.stderr.write(`${bytesText(bytes)} of ${bytesText(total)}\n`);
  };
  try {
    const from = openSource(parsed, env);
    const { signal } = new AbortController();
    io.out(await fetchToCache({ source: parsed, from, cache: hubCache(env), onProgress, signal }));
    return EXIT_DONE;
  } catch (error) {
    io.stderr.write(`${source}: ${errorText(error)}\n`);
    return isUnreachable(error) ? EXIT_NO_HUB : EXIT_ENGINE;
  }
}

/** https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables */
function hubCache(env: Env): string {
  const home = env.HF_HOME || join(env.XDG_CACHE_HOME || join(env.HOME ?? '', '.cache'), 'huggingface');
  return env.HF_HUB_CACHE || join(home, 'hub');
}
