/** `otela-gateway migrate`: moves the data of a gateway from its directory to PostgreSQL, or back. */
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../../../shared/command-line/index.ts';
import { loadManifest } from '../serve/program-files.ts';
import { postgresUrl } from '../serve/serve-command.ts';

const FLAGS = {
  data: { default: './data', value: 'DIR', takes: 'directory', help: 'the data directory' },
  to: { value: 'postgres://…', help: 'move from the directory to this database. PGPASSWORD: its password' },
  from: { value: 'postgres://…', help: 'move from this database to the directory' },
  'cluster-key': {
    value: 'FILE',
    takes: 'file',
    help: 'key of several processes that share the database; without it, only the accounts are in the database',
  },
  ...JSON_FLAG,
} as const satisfies Flags;

export const MIGRATE_COMMAND: Command = {
  summary: 'move the data of a gateway to PostgreSQL, or back',
  examples: `--data DIR --to postgres://… [--cluster-key FILE] | --data DIR --from postgres://… [--cluster-key FILE]

  otela-gateway migrate --data ./data --to postgres://otela@10.0.0.9/otela --cluster-key cluster.key
  otela-gateway migrate --data ./data --from postgres://otela@10.0.0.9/otela --cluster-key cluster.key

Stop the gateway first. The database must be new. All rows are copied in one transaction, read again and compared, so an interrupted
command changed nothing, or is completed when you run it again. Files that are in the database afterwards are in DIR/moved: delete them
when you no longer need them. Uploaded files stay where they are: docs/postgresql.md.`,
  flags: FLAGS,
  run: migrateCommand,
};

async function migrateCommand(args: readonly string[]): Promise<number> {
  const { values } = parseLine(args, FLAGS);
  const { data, to, from, json } = values;
  const given = to ?? from;
  if (given === undefined || (to !== undefined && from !== undefined))
    throw new UsageError('usage: otela-gateway migrate --data DIR --to postgres://… | --from postgres://…');
  process.umask(0o077);
  const flag = to === undefined ? '--from' : '--to';
  const options = {
    directory: data,
    url: postgresUrl(given, flag),
    keyFile: values['cluster-key'],
    program: await loadManifest(),
  };
  const moved =
    to === undefined
      ? await (await import('./to-directory.ts')).migrateToDirectory(options)
      : await (await import('./to-postgres.ts')).migrateToPostgres(options);
  const text = moved.finished
    ? 'an earlier move is finished'
    : `${moved.rows} rows, ${moved.objects} objects and ${moved.records} usage records, equal in both places`;
  console.log(json ? JSON.stringify({ data, ...moved }) : `${data}: ${text}`);
  return EXIT_DONE;
}
