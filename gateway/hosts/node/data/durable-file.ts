/** Small files of secrets and state: readable for this user alone, and never half written. */
import { open, readFile, rename } from 'node:fs/promises';

/** Under its own name only when whole and on disk. */
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

/** Without white space at its ends. Undefined where there is no such file. */
export async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
