import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Serves the dashboard's files from a directory. Names come from the dashboard's routes, which allow no `..`. */
export class Assets {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async fetch(url: string): Promise<Response> {
    const { pathname } = new URL(url); // Removes `..`.
    try {
      return new Response(await readFile(join(this.#directory, pathname)));
    } catch {
      return new Response(null, { status: 404 });
    }
  }
}
