import { accessSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { MANIFEST_FILE, SIGNATURE_FILE } from '../../shared/release/release-manifest.ts';
import { valueSetting } from './setting.ts';
import { toUsageError } from './to-usage-error.ts';

export const RELEASE_SETTINGS = {
  /** Directory with the manifest and signature of this program's release; undefined: the program's own directory. */
  releaseDir: valueSetting({
    flag: 'release-dir',
    env: 'OTELA_RELEASE_DIR',
    value: 'DIR',
    help: 'directory with manifest.json and manifest.sig of the release of this program',
    otherwise: "the program's directory, or its parent",
    parse: parseReleaseDir,
  }),
};

function parseReleaseDir(directory: string): string {
  for (const file of [MANIFEST_FILE, SIGNATURE_FILE]) {
    if (!existsSync(join(directory, file))) throw new UsageError(`release-dir: there is no ${file} in ${directory}`);
    toUsageError(() => accessSync(join(directory, file), constants.R_OK));
  }
  return directory;
}
