/** The manifest describes a backup and is its first file. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import * as z from 'zod';

export const MANIFEST = 'manifest.json';
/** Versions of the manifest: the current one, and that of version 0.1 of the gateway, which ran on workerd. */
export const BACKUP_FORM = 2;
export const WORKERD_FORM = 1;
/** Maximum bytes of a manifest, which needs about 150 bytes per file. */
export const BACKUP_MANIFEST_MAX_BYTES = 64 * 1024 * 1024;

/**
 * Matches only paths that occur in a data directory: no parent directory, no absolute path. Backups of earlier versions
 * have role.json and following.sqlite; see former-followers.ts.
 */
export const BACKUP_PATH_PATTERN =
  /^(layout\.json|role\.json|admin\.key|accounts\.sqlite|following\.sqlite|issuer\/[\w.-]+|files\/file-[0-9a-z]{24}|objects\/(alarms|[A-Z_]+\/[\w%-]+(\.hash)?)\.sqlite)$/;

export const backupManifestSchema = z.object({
  otela_backup: z.literal(BACKUP_FORM),
  /** Version of the program that made the backup. */
  version: z.string(),
  /** When the backup was made, in RFC 3339. */
  made_at: z.string(),
  /** Version of the data directory; see directory-version.ts. */
  layout: z.number().int().min(1),
  /** Applied migrations of the accounts, in order. */
  migrations: z.array(z.string()),
  files: z.array(
    z.object({
      path: z.string().regex(BACKUP_PATH_PATTERN),
      bytes: z.number().int().min(0),
      sha256: z.string().regex(/^[0-9a-f]{64}$/),
    }),
  ),
});
export type BackupManifest = z.infer<typeof backupManifestSchema>;

/** Returns the version that a manifest states, even if `backupManifestSchema` refuses it. */
export function manifestForm(stated: unknown): number | undefined {
  return z.object({ otela_backup: z.number() }).safeParse(stated).data?.otela_backup;
}

/** Computes the SHA-256 of a file in hex. */
export async function sha256Of(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex');
}
