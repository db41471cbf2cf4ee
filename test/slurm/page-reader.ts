/** A reader of a documentation page on the test's Slurm: an ordinary user with a home, a working directory and vLLM. */
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Place } from '../docs/reader.ts';
import { temporaryDirectory } from '../support/processes.ts';
import { type Cluster, USER } from './cluster.ts';

interface PageReader {
  /** Programs that precede all others on the PATH, in addition to vLLM: a shell line for each name. */
  programs?: Readonly<Record<string, string>>;
  /** The model that `vllm serve NAME …` serves, played by the mock engine. */
  model: string;
  /** Files that the reader got from others, according to the page. */
  files?: Readonly<Record<string, string>>;
  env: Readonly<Record<string, string>>;
  yours: Record<string, string>;
}

export async function readerOn(cluster: Cluster, reader: PageReader): Promise<Place> {
  const home = await temporaryDirectory('otela-reader');
  const [bin, cwd] = [join(home, 'bin'), join(home, 'work')];
  for (const directory of [home, bin, cwd, join(home, 'tmp'), join(home, 'run')]) {
    await mkdir(directory, { recursive: true });
    await chmod(directory, 0o700);
    await chown(directory, USER.uid, USER.gid);
  }
  const installed = join(cluster.directory, 'bin');
  const vllm = `${installed}/node ${installed}/stand-in-engine.mjs --model '${reader.model}'`;
  for (const [name, line] of Object.entries({ vllm, ...reader.programs }))
    await writeFile(join(bin, name), `#!/bin/sh\nexec ${line} "$@"\n`, { mode: 0o755 });
  await chown(bin, 0, USER.gid);
  await chmod(bin, 0o755);
  for (const [name, text] of Object.entries(reader.files ?? {})) {
    const file = join(cwd, name);
    await writeFile(file, `${text}\n`, { mode: 0o600 });
    await chown(file, USER.uid, USER.gid);
  }
  const env = {
    ...cluster.userEnv,
    HOME: home,
    USER: 'nobody',
    TMPDIR: join(home, 'tmp'),
    XDG_RUNTIME_DIR: join(home, 'run'),
    PATH: `${bin}:${installed}:${cluster.userEnv.PATH}`,
    OTELA_MESH: '127.0.0.1',
    ...reader.env,
  };
  return { cwd, env, yours: reader.yours, has: ['Slurm'], ...USER };
}
