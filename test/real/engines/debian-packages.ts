/**
 * Programs of Debian's unstable release, which has engines that older releases lack. They are unpacked into a folder with
 * all their libraries, and run with these. Nothing is installed on the machine.
 */
import { mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ENGINES_HOME, installOnce, run } from './install.ts';

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';
const LIBRARIES = 'root/usr/lib/x86_64-linux-gnu';
/** ggml's code for each kind of processor. It looks for them beside the program that runs, which is the loader. */
const BACKENDS = 'ggml/backends0';

interface DebianProgram {
  /** Name of the folder, with the version. */
  name: string;
  packages: readonly string[];
  program: string;
  /** Folders with libraries below the usual one. */
  folders?: readonly string[];
}

export function debianProgram({ name, packages, program, folders = [] }: DebianProgram) {
  const home = join(ENGINES_HOME, name);
  const libraries = join(home, LIBRARIES);
  const paths = [libraries, ...folders.map((folder) => join(libraries, folder))].join(':');
  return {
    argv: [join(libraries, 'ld-linux-x86-64.so.2'), '--library-path', paths, join(home, 'root/usr/bin', program)],
    install: () => installOnce(name, (folder) => unpack(folder, packages)),
  };
}

/** Lets apt resolve and verify the packages as for an empty machine. */
async function unpack(folder: string, packages: readonly string[]): Promise<void> {
  for (const part of ['lists/partial', 'cache/archives/partial', 'root'])
    await mkdir(join(folder, part), { recursive: true });
  await writeFile(join(folder, 'status'), '');
  await writeFile(join(folder, 'sources.list'), `deb [signed-by=${KEYRING}] http://deb.debian.org/debian sid main\n`);
  const settings = {
    'Dir::Etc::SourceList': join(folder, 'sources.list'),
    'Dir::Etc::SourceParts': join(folder, 'root'),
    'Dir::State': folder,
    'Dir::State::Status': join(folder, 'status'),
    'Dir::Cache': join(folder, 'cache'),
    'APT::Sandbox::User': '',
    'Acquire::Languages': 'none',
  };
  const options = Object.entries(settings).flatMap(([key, value]) => ['-o', `${key}=${value}`]);
  await run('apt-get', [...options, '-q', 'update']);
  await run('apt-get', [...options, '-qy', '--no-install-recommends', '--download-only', 'install', ...packages]);
  const archives = join(folder, 'cache/archives');
  for (const file of await readdir(archives))
    if (file.endsWith('.deb')) await run('dpkg-deb', ['-x', join(archives, file), join(folder, 'root')]);
  const libraries = join(folder, LIBRARIES);
  for (const file of await readdir(join(libraries, BACKENDS)))
    await symlink(join(BACKENDS, file), join(libraries, file)).catch(() => {});
}
