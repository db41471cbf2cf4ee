/** `otela-gateway files`: calls `/v1/files` from the shell. */
import { createWriteStream, openAsBlob } from 'node:fs';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine } from '../../shared/command-line/index.ts';
import {
  type ApiTarget,
  askGateway,
  ClientError,
  CONNECTION_FLAGS,
  download,
  type ListRow,
  listOrGet,
  printAnswer,
  refuseIgnoredFlags,
  targetAt,
  upload,
} from './api-client.ts';
import { isStdoutClosed, waitForStdout } from './closed-stdout.ts';

const PURPOSES = ['batch', 'user_data', 'assistants', 'fine-tune', 'vision', 'evals'];
const VERBS = ['list', 'get', 'put', 'delete', 'content'] as const;

const FLAGS = {
  purpose: { value: 'PURPOSE', takes: PURPOSES, help: 'put: purpose of the file; default: batch' },
  out: { value: 'FILE', takes: 'file', help: 'content: file to write to; default: stdout' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const FILES_COMMAND: Command = {
  summary: 'upload, download and delete files of batches',
  examples: `list | get ID | put FILE | delete ID | content ID

  otela-gateway files put claims.jsonl
  otela-gateway files content file-6f… --out answers.jsonl
  otela-gateway files list --json

The files belong to the project of the key in --key-file, or to its user.`,
  verbs: VERBS,
  flags: FLAGS,
  run: filesCommand,
};

const fileSchema = z.looseObject({
  id: z.string(),
  bytes: z.number(),
  created_at: z.number(),
  expires_at: z.number().optional(),
  filename: z.string(),
  purpose: z.string(),
});

const HEAD = ['id', 'purpose', 'bytes', 'created', 'kept', 'name'];
const row: ListRow = (value) => {
  const { id, bytes, created_at, expires_at, filename, purpose } = fileSchema.parse(value);
  const until = expires_at === undefined ? 'stays' : `until ${dateOf(expires_at)}`;
  return [id, purpose, String(bytes), dateOf(created_at), until, filename];
};

/** @param seconds since the epoch */
export function dateOf(seconds: number): string {
  return new Date(seconds * 1_000).toISOString().replace('.000', '');
}

async function filesCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, FLAGS, { words: 2 });
  const target = targetAt('/v1/files', values);
  refuseIgnoredFlags(words[0], { purpose: [values.purpose, 'put'], out: [values.out, 'content'] });
  return listOrGet(target, { head: HEAD, row }, words, 'files list|get ID|put FILE|delete ID|content ID', {
    put: async (file) => printAnswer(target, row, await putFile(target, file, values.purpose)),
    delete: async (_, path) => printAnswer(target, deleted, await askGateway(target, 'DELETE', path)),
    content: (_, path) => content(target, path, values.out),
  });
}

const deleted: ListRow = (answer) => [z.object({ id: z.string() }).parse(answer).id, 'deleted'];

/**
 * Uploads a file.
 * @returns the file's object
 * @throws ClientError
 */
export async function putFile(target: ApiTarget, path: string, purpose = 'batch'): Promise<unknown> {
  // The blob is backed by the file, which is read while it is sent.
  const blob = await blobOf(path);
  const form = new FormData();
  form.set('purpose', purpose);
  form.set('file', blob, basename(path));
  return upload(target, '', form);
}

async function blobOf(path: string): Promise<Blob> {
  try {
    return await openAsBlob(path);
  } catch (cause) {
    throw new ClientError(`cannot read ${path}`, { cause });
  }
}

async function content(target: ApiTarget, one: string, out: string | undefined): Promise<number> {
  const body = await download(target, `${one}/content`);
  if (out !== undefined) {
    await pipeline(Readable.fromWeb(body as Parameters<typeof Readable.fromWeb>[0]), createWriteStream(out));
    return EXIT_DONE;
  }
  for await (const piece of body) {
    if (isStdoutClosed()) break;
    if (!process.stdout.write(piece)) await waitForStdout();
  }
  return EXIT_DONE;
}
