import { readFile } from 'node:fs/promises';

/** Reads a file and trims its content. Undefined if the file does not exist. */
export async function readIfExists(file: string): Promise<string | undefined> {
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
