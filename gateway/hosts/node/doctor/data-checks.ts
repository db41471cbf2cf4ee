/** Checks the data directory: whether it can be used, has enough space, and fits this program. */
import { accessSync, constants } from 'node:fs';
import { access, readdir, readFile, stat, statfs } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { canOthersRead } from '../../../../node/private-file.ts';
import { fromBase64url } from '../../../../shared/lattice/base64url.ts';
import { CERTIFICATE_BYTES, decodeCertificate } from '../../../../shared/lattice/gateway-certificate.ts';
import { type CheckResult, checkFailed, checkPassed, checkWarning } from '../../../../shared/terminal/check-result.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { ADMIN_KEY, lockDirectory } from '../data/data-directory.ts';
import { layoutOf } from '../data/directory-version.ts';
import { refuseDamaged } from '../data/refuse-damaged.ts';
import { ACCOUNTS_FILE, appliedMigrations, unknownMigrations } from '../data/schema-version.ts';
import { loadManifest } from '../serve/program-files.ts';

const MIB = 1024 * 1024;
/**
 * The doctor warns if less space is free. SQLite's logs and a month of usage records of a small site need this much.
 */
const FREE_LOW_MIB = 2048;
const FREE_MIN_MIB = 256;
/** Network file systems by `f_type` of statfs(2). SQLite's shared memory does not work on them. */
const NETWORK: Readonly<Record<number, string>> = {
  26985: 'NFS',
  1397118030: 'NCP',
  4266872130: 'SMB',
  4283649346: 'CIFS',
  198183888: 'Lustre',
  1196443219: 'GPFS',
  12805120: 'Ceph',
};
const RIGHTS = 0o777;
const OTHERS = 0o077;
const DAY_MS = 86_400_000;
/**
 * The doctor warns this many days before the certificate's end. Without the root key the gateway cannot renew the
 * certificate.
 */
const CERTIFICATE_SOON_DAYS = 30;

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );

export async function checkDirectory(path: string): Promise<{ running: boolean; findings: CheckResult[] }> {
  const what = 'data directory';
  if (!(await exists(path))) {
    const parent = await standingAbove(path);
    const findings = mayWrite(parent)
      ? [checkPassed(what, `${path} does not exist yet; the first start creates it`), await checkDisk(parent)]
      : [
          checkFailed(
            what,
            `${path} cannot be created: ${parent} is not writable`,
            `Create it: install -d -m 0700 -o USER ${path}.`,
          ),
        ];
    return { running: false, findings };
  }
  const { mode, uid } = await stat(path);
  const me = process.getuid?.();
  if (!mayWrite(path))
    return {
      running: false,
      findings: [
        checkFailed(what, `this user cannot write to ${path}`, 'Run as the user that runs the gateway, or chown it.'),
      ],
    };
  const findings: CheckResult[] = [];
  const entries = (await readdir(path)).filter((name) => name !== 'lost+found' && name !== 'issuer');
  const foreign = entries.length > 0 && !entries.includes('lock');
  if (foreign) findings.push(checkFailed(what, `${path} contains other files`, 'Give --data another directory.'));
  else if ((mode & OTHERS) !== 0)
    findings.push(
      checkWarning(
        what,
        `${path} has mode ${(mode & RIGHTS).toString(8)}: other users may read its keys`,
        `chmod 700 ${path}`,
      ),
    );
  else if (me !== undefined && uid !== me)
    findings.push(
      checkWarning(
        what,
        `${path} belongs to user ${uid}, but the current user is ${me}`,
        'Run as its owner: otherwise new files belong to the current user.',
      ),
    );
  else findings.push(checkPassed(what, `${path}, only for its owner`));
  const running = entries.includes('lock') && isHeld(path);
  if (running) findings.push(checkPassed('gateway', 'a gateway runs on this directory'));
  findings.push(await checkDisk(path));
  return { running, findings };
}

/** Returns the nearest existing parent. Below it, the first start creates the missing directories. */
async function standingAbove(path: string): Promise<string> {
  const parent = dirname(resolve(path));
  return parent === dirname(parent) || (await exists(parent)) ? parent : standingAbove(parent);
}

function mayWrite(path: string): boolean {
  try {
    accessSync(path, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function isHeld(path: string): boolean {
  try {
    lockDirectory(path)();
    return false;
  } catch {
    return true;
  }
}

async function checkDisk(path: string): Promise<CheckResult> {
  const { type, bavail, bsize, blocks } = await statfs(path);
  const network = NETWORK[type];
  if (network !== undefined)
    return checkFailed(
      'disk',
      `${path} is on ${network}: SQLite’s write-ahead log does not work there`,
      'Use a local disk.',
    );
  const free = (bavail * bsize) / MIB;
  const found = `${Math.floor(free)} MiB free of ${Math.floor((blocks * bsize) / MIB)}`;
  const fix =
    'Free some space: if the disk is full, usage cannot be recorded. To keep usage records for a shorter time, set USAGE_KEPT_DAYS.';
  if (free < FREE_MIN_MIB) return checkFailed('disk', found, fix);
  return free < FREE_LOW_MIB ? checkWarning('disk', found, fix) : checkPassed('disk', found);
}

export async function checkSchema(path: string): Promise<CheckResult[]> {
  const what = 'schema';
  const bundle = await loadManifest().catch((error: unknown) => errorText(error));
  if (typeof bundle === 'string')
    return [checkFailed('program', `is incomplete: ${bundle}`, 'Install it again, or npm run build.')];
  const known = bundle.migrations.map(({ name }) => name);
  try {
    const applied = appliedMigrations(join(path, ACCOUNTS_FILE));
    const newer = unknownMigrations(known, applied);
    if (newer.length > 0)
      return [
        checkFailed(
          what,
          `written by a newer otela-gateway: this version does not know ${newer.join(', ')}`,
          'Run that version or a later one, or restore a backup from before the upgrade.',
        ),
      ];
    const missing = known.length - applied.length;
    if (applied.length === 0) return [checkPassed(what, `none yet; the first start creates it (${known.at(-1)})`)];
    if (missing === 0) return [checkPassed(what, `${applied.at(-1)}, the newest that this version knows`)];
    return [
      checkPassed(what, `${applied.at(-1)}; the next start applies ${missing} more: run otela-gateway backup first`),
    ];
  } catch (error) {
    return [
      checkFailed(what, `cannot be read: ${errorText(error)}`, 'Restore a backup: otela-gateway restore --help.'),
    ];
  }
}

/** Checks the version of the directory, and the databases without which no request can be answered. */
export function checkDatabases(path: string): CheckResult {
  const what = 'data';
  try {
    const version = layoutOf(path);
    if (version === undefined) return checkPassed(what, 'none yet; the first start creates it');
    refuseDamaged(path);
    return checkPassed(what, `layout version ${version}; accounts, registry and alarms are intact`);
  } catch (error) {
    return checkFailed(what, errorText(error), 'Give --data another directory, or restore a backup.');
  }
}

export async function checkAdminKey(path: string): Promise<CheckResult> {
  const [what, file] = ['admin key', join(path, 'admin.key')];
  if (!(await exists(file))) return checkPassed(what, 'none yet; the next start creates it');
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined)
    return checkFailed(what, `${file} cannot be read`, `chown it to the gateway's user; chmod 600 ${file}`);
  if (!ADMIN_KEY.test(text.trim()))
    return checkFailed(what, `${file} contains no key`, 'Remove it: the next start creates another one.');
  const found = await stat(file);
  if (!canOthersRead(found)) return checkPassed(what, file);
  return checkWarning(
    what,
    `${file} has mode ${(found.mode & RIGHTS).toString(8)}: a user that can read it becomes an operator`,
    `chmod 600 ${file}`,
  );
}

/** Checks the keys that the next start would find, without creating or renewing any. */
export async function checkIssuer(path: string, nowMs: number): Promise<CheckResult[]> {
  const [what, dir] = ['issuer', join(path, 'issuer')];
  const [root, key, certificate] = await Promise.all(
    ['root.key', 'gateway.key', 'gateway.cert'].map((name) =>
      readFile(join(dir, name), 'utf8').then(
        (text) => text.trim(),
        () => undefined,
      ),
    ),
  );
  if (root === undefined && key === undefined) return [checkPassed(what, 'none yet; the first start creates one')];
  const findings: CheckResult[] = [];
  const ends = certificate === undefined ? undefined : endOf(certificate);
  const days = ends === undefined ? -1 : Math.floor((ends.until - nowMs) / DAY_MS);
  if (root !== undefined) findings.push(checkPassed(what, `${dir}; each start renews its certificate`));
  else if (ends === undefined || key === undefined)
    findings.push(
      checkFailed(what, `${dir} has no key with its certificate`, `Put root.key into ${dir} for one start.`),
    );
  else if (days < 0)
    findings.push(checkFailed(what, 'its certificate has expired', `Put root.key into ${dir} for one start.`));
  else if (days < CERTIFICATE_SOON_DAYS)
    findings.push(
      checkWarning(what, `its certificate expires in ${days} days`, `Put root.key into ${dir} for one start.`),
    );
  else
    findings.push(
      checkPassed(what, `its certificate is valid for ${days} more days; the root key is not on this machine`),
    );
  if (ends !== undefined && ends.from > nowMs)
    findings.push(
      checkFailed(
        'clock',
        `is before the start of the issuer's certificate (${new Date(ends.from).toISOString()})`,
        'Set it (NTP): otherwise no agent can be admitted.',
      ),
    );
  return findings;
}

function endOf(text: string): { from: number; until: number } | undefined {
  try {
    const { notBefore, notAfter } = decodeCertificate(fromBase64url(text, CERTIFICATE_BYTES) ?? new Uint8Array());
    return { from: notBefore * 1000, until: notAfter * 1000 };
  } catch {
    return undefined;
  }
}
