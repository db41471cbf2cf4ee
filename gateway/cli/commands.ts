/** Every command of `otela-gateway`, by name, in the order of its help. */

import { type Command, EXIT_CODES } from '../command.ts';
import { BACKUP } from '../hosts/node/backup/backup-command.ts';
import { RESTORE } from '../hosts/node/backup/restore-command.ts';
import { DOCTOR } from '../hosts/node/doctor/doctor-command.ts';
import { ISSUER } from '../hosts/node/issuer/issuer-command.ts';
import { SERVE } from '../hosts/node/serve/serve-command.ts';
import { BATCHES } from './batches-command.ts';
import { FILES } from './files-command.ts';
import { NODES } from './nodes-command.ts';
import { PEERS } from './peers-command.ts';
import { commandOf } from './resource-command.ts';
import { RESOURCES } from './resources.ts';
import { SETTINGS } from './settings-command.ts';
import { AUDIT, TRACE, USAGE } from './usage-command.ts';

export const COMMANDS: Readonly<Record<string, Command>> = {
  serve: SERVE,
  doctor: DOCTOR,
  backup: BACKUP,
  restore: RESTORE,
  ...Object.fromEntries(Object.entries(RESOURCES).map(([name, resource]) => [name, commandOf(name, resource)])),
  nodes: NODES,
  peers: PEERS,
  batches: BATCHES,
  files: FILES,
  usage: USAGE,
  trace: TRACE,
  settings: SETTINGS,
  audit: AUDIT,
  issuer: ISSUER,
};

const WIDTH = 11;

export function overview(): string {
  const lines = Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(WIDTH)}${summary}`);
  return `otela-gateway runs an OpenTela gateway on this machine, and is the shell of any.

  otela-gateway serve --data ./data
  otela-gateway keys create --name ada
  otela-gateway tokens create --provider eth --cluster alps
  otela-gateway nodes list --url https://gw.example.org --key-file admin.key

${lines.join('\n')}
  ${'completion'.padEnd(WIDTH)}for a shell: source <(otela-gateway completion bash)
  ${'version'.padEnd(WIDTH)}of this program

otela-gateway COMMAND --help tells more. All but serve, doctor, backup, restore and issuer ask a gateway:
--url (http://127.0.0.1:8787), --key-file (./data/admin.key). --json prints one object a line.

${EXIT_CODES}`;
}
