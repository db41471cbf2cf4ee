/** Every command of `otela-gateway`, by name, in the order of its help. */
import manifest from '../../package.json' with { type: 'json' };
import { type Command, EXIT_DONE, EXIT_USAGE, type Program } from '../../shared/command-line/index.ts';
import { EXIT_FAILED, EXIT_UNREACHABLE } from '../command.ts';

import { BACKUP } from '../hosts/node/backup/backup-command.ts';
import { RESTORE } from '../hosts/node/backup/restore-command.ts';
import { DOCTOR } from '../hosts/node/doctor/doctor-command.ts';
import { PROMOTE } from '../hosts/node/following/promote-command.ts';
import { ISSUER } from '../hosts/node/issuer/issuer-command.ts';
import { SERVE } from '../hosts/node/serve/serve-command.ts';
import { BATCHES } from './batches-command.ts';
import { CATALOGUE } from './catalogue-command.ts';
import { FACTORY } from './factory-command.ts';
import { FILES } from './files-command.ts';
import { GATEWAYS } from './gateways-command.ts';
import { LOGS } from './logs-command.ts';
import { NODES } from './nodes-command.ts';
import { PEERS } from './peers-command.ts';
import { ACCESS, MEMBERS } from './people-commands.ts';
import { commandOf } from './resource-command.ts';
import { RESOURCES } from './resources.ts';
import { ROLLOUT } from './rollout-command.ts';
import { SETTINGS } from './settings-command.ts';
import { AUDIT, TRACE, USAGE } from './usage-command.ts';
import { WHY } from './why-command.ts';

const COMMANDS: Readonly<Record<string, Command>> = {
  serve: SERVE,
  doctor: DOCTOR,
  backup: BACKUP,
  restore: RESTORE,
  ...Object.fromEntries(Object.entries(RESOURCES).map(([name, resource]) => [name, commandOf(name, resource)])),
  members: MEMBERS,
  access: ACCESS,
  catalogue: CATALOGUE,
  factory: FACTORY,
  nodes: NODES,
  logs: LOGS,
  rollout: ROLLOUT,
  peers: PEERS,
  batches: BATCHES,
  files: FILES,
  gateways: GATEWAYS,
  usage: USAGE,
  why: WHY,
  trace: TRACE,
  settings: SETTINGS,
  audit: AUDIT,
  issuer: ISSUER,
  promote: PROMOTE,
};

export const PROGRAM: Program = {
  name: 'otela-gateway',
  version: manifest.version,
  about: `otela-gateway runs an OpenTela gateway on this machine, and is the shell of any.

  otela-gateway serve --data ./data
  otela-gateway keys create --name ada
  otela-gateway tokens create --provider eth --cluster alps
  otela-gateway nodes list --url https://gw.example.org --key-file admin.key

All but serve, doctor, backup, restore, issuer and promote ask a gateway: --url, --key-file. --json prints one object a line.`,
  exitCodes: `Exit codes: ${EXIT_DONE} done, ${EXIT_FAILED} refused by the gateway or failed, ${EXIT_USAGE} wrong use, ${EXIT_UNREACHABLE} no gateway answers.`,
  commands: COMMANDS,
};
