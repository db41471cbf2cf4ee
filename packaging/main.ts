/**
 * `npm run release` makes all files that users install, for testing. With `-- --key FILE` the release is signed and may
 * be published. `npm run release -- --new-key FILE` makes a key and prints its public half.
 */
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { PLATFORMS, type Platform } from '../shared/release/release-manifest.ts';
import { OPTIONAL, release } from './release.ts';
import { newKey, readKey } from './release-key.ts';

const USAGE = `npm run release -- [--key FILE] [--out release] [--platform NAME …] [--without NAME …] [--no-build]
npm run release -- --new-key FILE
platforms, for which single-file agent and image are made: ${PLATFORMS.join(', ')} (both, unless some are named), none
what can be left out: ${OPTIONAL.join(', ')}
--no-build takes dist/ as it is`;
const [DONE, FAILED, WRONG_USE] = [0, 1, 2];

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      key: { type: 'string' },
      'new-key': { type: 'string' },
      out: { type: 'string', default: fileURLToPath(new URL('../release', import.meta.url)) },
      platform: { type: 'string', multiple: true },
      'no-build': { type: 'boolean', default: false },
      without: { type: 'string', multiple: true, default: [] },
    },
  });
  const platforms = platformsNamed(values.platform);
  if (values['new-key'] !== undefined) {
    console.log((await newKey(values['new-key'])).name);
    return DONE;
  }
  const without = OPTIONAL.filter((name) => values.without.includes(name));
  if (platforms === undefined || without.length < new Set(values.without).size) {
    console.error(USAGE);
    return WRONG_USE;
  }
  const key = values.key === undefined ? undefined : await readKey(values.key);
  await release({
    key,
    out: resolve(values.out),
    platforms,
    without,
    build: !values['no-build'],
    report: (line) => console.log(line),
  });
  return DONE;
}

/** The platforms with these names; undefined if one of the names is not a platform. */
function platformsNamed(names: readonly string[] | undefined): Platform[] | undefined {
  if (names === undefined) return [...PLATFORMS];
  const known = PLATFORMS.filter((platform) => names.includes(platform));
  return names.every((name) => name === 'none' || PLATFORMS.some((platform) => platform === name)) ? known : undefined;
}

try {
  process.exitCode = await main();
} catch (error) {
  const wrongUse = error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');
  console.error(`release: ${told(error)}${wrongUse ? `\n${USAGE}` : ''}`);
  process.exitCode = wrongUse ? WRONG_USE : FAILED;
}

/** Message of an error with its causes, because npm's own message says why something could not be fetched. */
function told(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}\n${told(error.cause)}`;
}
