/**
 * Loaded by programs whose files visited-files.ts counts: whenever the directory OTELA_VISITED has a file `take-N`,
 * writes the files of which a function ran since the last time, as `N-PID.json`.
 */
import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { join } from 'node:path';
import { neverRejects } from '../../shared/timing/in-background.ts';

const POLL_MS = 20;

const directory = process.env.OTELA_VISITED ?? '';
const session = new Session();
session.connect();
await session.post('Profiler.enable');
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });

let round = 0;
setInterval(() => {
  if (!existsSync(join(directory, `take-${round}`))) return;
  const path = join(directory, `${round++}-${process.pid}.json`);
  neverRejects(write(path));
}, POLL_MS).unref();

async function write(path: string): Promise<void> {
  const { result } = await session.post('Profiler.takePreciseCoverage');
  const ran = result.filter(({ functions }) =>
    functions.some(({ functionName, ranges }) => functionName !== '' && (ranges[0]?.count ?? 0) > 0),
  );
  writeFileSync(`${path}.new`, JSON.stringify(ran.map(({ url }) => url)));
  renameSync(`${path}.new`, path);
}
