/**
 * `otela-gateway doctor`: reports what would prevent a gateway on this machine from starting or working, each with a
 * fix. Starts nothing and changes nothing.
 */
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { type Command, EXIT_DONE, type Flags, parseLine } from '../../../../shared/command-line/index.ts';
import { type CheckResult, checkText } from '../../../../shared/terminal/check-result.ts';
import { painterFor } from '../../../../shared/terminal/paint.ts';
import { EXIT_FAILED } from '../../../command-error.ts';
import { ACCOUNTS_FILE, storedSetting } from '../data/schema-version.ts';
import { SERVE_FLAGS, serveOptions } from '../serve/serve-command.ts';
import { checkAdminKey, checkDatabases, checkDirectory, checkIssuer, checkSchema } from './data-checks.ts';
import { checkClock, checkOpenFiles } from './host-checks.ts';
import { checkPort, checkPublicUrl } from './network-checks.ts';
import { checkTls } from './tls-checks.ts';

const FLAGS = {
  ...SERVE_FLAGS,
  'public-url': { value: 'URL', help: 'URL at which clients reach the gateway; default: the setting public_url' },
  json: { ...SERVE_FLAGS.json, help: 'print one JSON list of findings, for scripts' },
} as const satisfies Flags;

export const GATEWAY_DOCTOR_COMMAND: Command = {
  summary: 'check whether a gateway can run here, and show how to fix problems',
  examples: `[flags of serve] [--public-url URL]

  otela-gateway doctor --data ./data
  otela-gateway doctor --data /var/lib/otela/data --port 443 --tls-cert chain.pem --tls-key key.pem --public-url https://gw.example.org

Checks the data directory (permissions, disk, schema, admin key, keys of the issuer), the port, TLS files, the clock, the limit of
open files, and the connection to the public URL. Run it as the user that runs the gateway. It does not affect a running gateway.
Exit code: 0 if nothing prevents the gateway from running (warnings are allowed), ${EXIT_FAILED} otherwise.`,
  flags: FLAGS,
  run: doctorCommand,
};

async function doctorCommand(args: readonly string[]): Promise<number> {
  const { values } = parseLine(args, FLAGS);
  const { data, host, port, tls, database } = serveOptions(values);
  const path = await realpath(data).catch(() => data);
  const publicUrl = values['public-url'] ?? publicUrlOf(path);
  const { running, findings } = await checkDirectory(path);
  findings.push(
    checkDatabases(path),
    ...(await checkSchema(path)),
    await checkAdminKey(path),
    ...(await checkIssuer(path, Date.now())),
    await checkPort(host, port, running),
    ...(tls === undefined ? [] : await checkTls(tls, publicUrl, Date.now())),
    ...(await checkClock(path, Date.now())),
    checkOpenFiles(),
    ...(database === undefined ? [] : await checkDatabaseOf(database)),
    ...(publicUrl === undefined ? [] : [await checkPublicUrl(publicUrl)]),
  );
  print(findings, values.json);
  return findings.some(({ verdict }) => verdict === 'bad') ? EXIT_FAILED : EXIT_DONE;
}

/** Imported only here, so that other checks do not load the driver. */
async function checkDatabaseOf(database: string): Promise<CheckResult[]> {
  const { checkDatabase } = await import('./database-checks.ts');
  return checkDatabase(database, Date.now);
}

function publicUrlOf(path: string): string | undefined {
  try {
    const stored = storedSetting(join(path, ACCOUNTS_FILE), 'public_url');
    const url: unknown = typeof stored === 'string' ? JSON.parse(stored) : undefined;
    return typeof url === 'string' ? url : undefined;
  } catch {
    // The file is unreadable; the schema check reports why.
    return undefined;
  }
}

function print(findings: readonly CheckResult[], json: boolean): void {
  if (json) return console.log(JSON.stringify(findings, null, 2));
  const paint = painterFor(process.stdout, process.env);
  for (const finding of findings) console.log(checkText(finding, paint));
}
