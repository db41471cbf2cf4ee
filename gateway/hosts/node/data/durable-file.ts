/** Small files with secrets and state: readable only by this user, and never half written. */
import { open, readFile, rename } from 'node:fs/promises';

/** The file gets its name only when it is complete and on disk. */
export async function writeDurably(file: string, text: string): Promise<void> {
  const unfinished = `${file}.new`;
  const handle = await open(unfinished, 'w', 0o600);
  try {
    await handle.writeFile(`${text}\n`);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(unfinished, file);
}

/** Trimmed content. Undefined if the file does not exist. */
export async function readIfExists(file: string): Promise<string | undefined> {
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
