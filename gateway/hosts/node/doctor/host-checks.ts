/** Checks this machine: its clock, and its limit of open files. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type CheckResult, checkFailed, checkPassed, checkWarning } from '../../../../shared/terminal/check-result.ts';
import { CONNECTIONS_MAX } from '../client-connections.ts';

const TOOL_MS = 10_000;
/** Maximum time by which a file may be newer than now, because the clock of a file server may be slightly ahead. */
const AHEAD_MAX_MS = 60_000;
/**
 * Recommended minimum for the limit of open files: one file per connection of a client, some hundred objects in use
 * with three files each, and some others. A thousand connected nodes need up to 4,000 more.
 */
const OPEN_FILES_WANTED = CONNECTIONS_MAX + 4_096;
const OPEN_FILES_MIN = 1_024;

/** Checks the clock: a file that was written earlier must not be newer than now. */
export async function checkClock(data: string, nowMs: number): Promise<CheckResult[]> {
  const what = 'clock';
  const names = ['.', ...(await readdir(data).catch(() => []))];
  const times = await Promise.all(names.map((name) => stat(join(data, name)).catch(() => undefined)));
  const newest = Math.max(0, ...times.map((time) => time?.mtimeMs ?? 0));
  const ahead = newest - nowMs;
  if (ahead > AHEAD_MAX_MS)
    return [
      checkFailed(
        what,
        `was ${Math.round(ahead / 1000)} s later when the gateway last wrote`,
        'Set it (NTP) before the gateway starts.',
      ),
    ];
  const { status, stdout } = spawnSync('timedatectl', ['show', '--property=NTPSynchronized', '--value'], {
    encoding: 'utf8',
    timeout: TOOL_MS,
  });
  if (status !== 0)
    return [checkPassed(what, `${new Date(nowMs).toISOString()}; whether NTP synchronizes it is unknown`)];
  if (stdout.trim() === 'yes') return [checkPassed(what, 'synchronized by NTP')];
  return [
    checkWarning(
      what,
      'is not synchronized by NTP',
      'timedatectl set-ntp true: tickets, logins and limits depend on it.',
    ),
  ];
}

export function checkOpenFiles(): CheckResult {
  const what = 'open files';
  const line = /^Max open files\s+(\S+)/m.exec(readOr('/proc/self/limits'))?.[1];
  if (line === undefined) return checkPassed(what, 'the limit is unknown');
  const limit = line === 'unlimited' ? Number.POSITIVE_INFINITY : Number(line);
  const fix = `LimitNOFILE=65536 in the unit, or ulimit -n: clients may have ${CONNECTIONS_MAX} connections, and each connected node uses one file, and 2,048 of them four.`;
  if (limit < OPEN_FILES_MIN) return checkFailed(what, `${line} at most`, fix);
  return limit < OPEN_FILES_WANTED ? checkWarning(what, `${line} at most`, fix) : checkPassed(what, `${line} at most`);
}

function readOr(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
