/**
 * DATA/role.json: whether this gateway is the primary of its institution or follows another. If the file is absent,
 * this gateway is the primary in epoch 0.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { writePrivateFile } from '../../../../node/private-file.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';
import { CommandError } from '../../../command-error.ts';

export const ROLE_FILE = 'role.json';
/** File with followers, queued records, and the progress of the copy. */
export const REPLICATION_FILE = 'following.sqlite';

const roleSchema = z.strictObject({
  role: z.enum(['first', 'follower']),
  epoch: z.number().int().min(0),
  /** The statement about the primary, signed by the root; absent in epoch 0. */
  statement: z.string().max(8192).optional(),
  /** For a follower: URL of the primary. */
  follow: z.url({ protocol: /^https?$/ }).optional(),
  /** For a promoted primary: former primaries that do not have the statement yet. */
  tell: z
    .array(z.url({ protocol: /^https?$/ }))
    .max(16)
    .optional(),
});
export type GatewayRole = z.infer<typeof roleSchema>;

const FIRST: GatewayRole = { role: 'first', epoch: 0 };

/** @throws CommandError if the file is damaged: a guessed role could create two primaries */
export function readRole(data: string): GatewayRole {
  const file = join(data, ROLE_FILE);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return FIRST;
    throw error;
  }
  const parsed = roleSchema.safeParse(tryParseJson(text));
  if (parsed.success) return parsed.data;
  throw new CommandError(`${file} is damaged: ${z.prettifyError(parsed.error)}. Restore the file from a backup.`);
}

export function writeRole(data: string, role: GatewayRole): void {
  writePrivateFile(join(data, ROLE_FILE), `${JSON.stringify(role)}\n`);
}
