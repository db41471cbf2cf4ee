/** Every command of `otela-gateway`, in the order of its help. */
import manifest from '../../package.json' with { type: 'json' };
import {
  type Command,
  EXIT_DONE,
  EXIT_UNAVAILABLE,
  EXIT_USAGE,
  type Program,
} from '../../shared/command-line/index.ts';
import { EXIT_FAILED } from '../command-error.ts';

import { BACKUP_COMMAND } from '../hosts/node/backup/backup-command.ts';
import { RESTORE_COMMAND } from '../hosts/node/backup/restore-command.ts';
import { GATEWAY_DOCTOR_COMMAND } from '../hosts/node/doctor/doctor-command.ts';
import { ISSUER_COMMAND } from '../hosts/node/issuer/issuer-command.ts';
import { MIGRATE_COMMAND } from '../hosts/node/migrate/migrate-command.ts';
import { SERVE_COMMAND } from '../hosts/node/serve/serve-command.ts';
import { BATCHES_COMMAND } from './batches-command.ts';
import { CATALOGUE_COMMAND } from './catalogue-command.ts';
import { APPLY_COMMAND, DIFF_COMMAND, EXPORT_COMMAND } from './configuration/configuration-commands.ts';
import { FACTORY_COMMAND } from './factory-command.ts';
import { FILES_COMMAND } from './files-command.ts';
import { NODE_LOGS_COMMAND } from './logs-command.ts';
import { MODELS_COMMAND } from './models-command.ts';
import { NODES_COMMAND } from './nodes-command.ts';
import { PEERS_COMMAND } from './peers-command.ts';
import { ACCESS_COMMAND, MEMBERS_COMMAND } from './people-commands.ts';
import { buildResourceCommand } from './resource-command.ts';
import { RESOURCES } from './resources.ts';
import { ROLLOUT_COMMAND } from './rollout-command.ts';
import { SETTINGS_COMMAND } from './settings-command.ts';
import { SETUP_COMMAND } from './setup-command.ts';
import { STATEMENT_COMMAND } from './statement-command.ts';
import { AUDIT_COMMAND, TRACE_COMMAND, USAGE_COMMAND } from './usage-command.ts';
import { WHY_COMMAND } from './why-command.ts';

const COMMANDS: Readonly<Record<string, Command>> = {
  serve: SERVE_COMMAND,
  setup: SETUP_COMMAND,
  doctor: GATEWAY_DOCTOR_COMMAND,
  backup: BACKUP_COMMAND,
  restore: RESTORE_COMMAND,
  migrate: MIGRATE_COMMAND,
  ...Object.fromEntries(
    Object.entries(RESOURCES).map(([name, resource]) => [name, buildResourceCommand(name, resource)]),
  ),
  members: MEMBERS_COMMAND,
  access: ACCESS_COMMAND,
  catalogue: CATALOGUE_COMMAND,
  factory: FACTORY_COMMAND,
  models: MODELS_COMMAND,
  nodes: NODES_COMMAND,
  logs: NODE_LOGS_COMMAND,
  rollout: ROLLOUT_COMMAND,
  peers: PEERS_COMMAND,
  batches: BATCHES_COMMAND,
  files: FILES_COMMAND,
  usage: USAGE_COMMAND,
  statement: STATEMENT_COMMAND,
  why: WHY_COMMAND,
  trace: TRACE_COMMAND,
  settings: SETTINGS_COMMAND,
  export: EXPORT_COMMAND,
  diff: DIFF_COMMAND,
  apply: APPLY_COMMAND,
  audit: AUDIT_COMMAND,
  issuer: ISSUER_COMMAND,
};

export const GATEWAY_PROGRAM: Program = {
  name: 'otela-gateway',
  version: manifest.version,
  about: `otela-gateway runs an OpenTela gateway on this machine, and administers any gateway.

  otela-gateway serve --data ./data
  otela-gateway keys create --name ada
  otela-gateway tokens create --provider eth --cluster alps
  otela-gateway nodes list --url https://gw.example.org --key-file admin.key

Every command except serve, doctor, backup, restore, migrate and issuer calls a gateway: --url, --key-file. --json prints one object per line.`,
  exitCodes: `Exit codes: ${EXIT_DONE} done, ${EXIT_FAILED} refused by the gateway or failed, ${EXIT_USAGE} wrong usage, ${EXIT_UNAVAILABLE} the gateway does not answer.`,
  commands: COMMANDS,
};
