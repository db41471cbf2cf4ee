/**
 * Lists the third-party packages in a release in the format CycloneDX (https://cyclonedx.org/docs/1.5/json/), and
 * collects the texts of their licenses.
 */
import { execFile } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as z from 'zod';
import { filesBelow } from './archives.ts';
import { NODE_VERSION, quietly, sha256 } from './node-binaries.ts';

const BOM_BYTES = 16 * 2 ** 20;

const namedSchema = z.object({ name: z.string(), version: z.string() });
const componentSchema = z.looseObject({ 'bom-ref': z.string(), name: z.string(), version: z.string() });
type Component = z.infer<typeof componentSchema>;
const bomSchema = z.looseObject({
  metadata: z.looseObject({ component: componentSchema }),
  components: z.array(componentSchema),
  dependencies: z.array(z.looseObject({ ref: z.string(), dependsOn: z.array(z.string()).optional() })),
});

/** Directories of the packages that build.ts bundled, together with `more`; relative to the clone's root, sorted. */
export async function bundledPackages(root: string, more: readonly string[]): Promise<string[]> {
  const lists = await Promise.all(
    (await filesBelow(join(root, 'dist/packages'))).map(async (name) =>
      z.array(z.string()).parse(JSON.parse(await readFile(join(root, 'dist/packages', name), 'utf8'))),
    ),
  );
  return [...new Set([...lists.flat(), ...more])].toSorted();
}

/** All license texts, one after another, because bundled code must be distributed with them. */
export async function licences(root: string, packages: readonly string[]): Promise<string> {
  const parts = packages.map(async (directory) => {
    const { name, version } = await describedIn(root, directory);
    const files = (await readdir(join(root, directory))).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
    const texts = await Promise.all(files.toSorted().map((file) => readFile(join(root, directory, file), 'utf8')));
    if (texts.length === 0) texts.push(await licenceInReadme(join(root, directory)));
    return `== ${name} ${version}\n\n${texts.map((text) => text.trim()).join('\n\n')}\n`;
  });
  return (await Promise.all(parts)).join('\n');
}

/** The license section of a package's README, for a package without a license file; empty if it has none. */
async function licenceInReadme(directory: string): Promise<string> {
  const readme = await readFile(join(directory, 'README.md'), 'utf8').catch(() => '');
  return /^#+ licen[cs]e\s*$([\s\S]*)/im.exec(readme)?.[1] ?? '';
}

interface BomOptions {
  /** Directories of npm packages, from `bundledPackages`. */
  packages: readonly string[];
  /** Debian's packages in the image, each with its version and architecture. */
  debian: readonly { name: string; version: string; architecture: string }[];
  version: string;
  /** Date of the list, seconds since 1970. */
  date: number;
}

/**
 * `npm sbom` lists the whole lock file; only the distributed packages are kept. It is called with development
 * packages, because without them it would also omit packages that are needed for both.
 */
export async function writeBom(
  file: string,
  root: string,
  { packages, debian, version, date }: BomOptions,
): Promise<void> {
  const { stdout } = await promisify(execFile)(
    'npm',
    ['sbom', '--sbom-format=cyclonedx', '--package-lock-only', '--include=dev'],
    {
      cwd: root,
      env: quietly(),
      maxBuffer: BOM_BYTES,
    },
  );
  // URLs in the list get npm's registry in place of the lock file's placeholder.
  const whole = bomSchema.parse(
    JSON.parse(stdout.replaceAll('https://registry.invalid/', 'https://registry.npmjs.org/')),
  );
  const refs = await Promise.all(
    packages.map(async (directory) => {
      const { name, version: its } = await describedIn(root, directory);
      return `${name}@${its}`;
    }),
  );
  const bundled = whole.components
    .filter((one) => refs.includes(one['bom-ref']))
    // npm considers the dashboard's packages as only for development. They are bundled, so they are part of the
    // product.
    .map((one) => ({ ...one, scope: 'required', properties: undefined }));
  const lacking = refs.filter((ref) => !bundled.some((one) => one['bom-ref'] === ref));
  if (lacking.length > 0) throw new Error(`npm sbom does not list these bundled packages: ${lacking.join(', ')}`);
  const others: Component[] = [
    component('node', NODE_VERSION, `pkg:generic/node@${NODE_VERSION}`),
    ...debian.map((one) =>
      component(
        one.name,
        one.version,
        `pkg:deb/debian/${one.name}@${encodeURIComponent(one.version)}?arch=${one.architecture}`,
      ),
    ),
  ];
  const self = {
    ...whole.metadata.component,
    'bom-ref': `opentela@${version}`,
    name: 'opentela',
    properties: undefined,
  };
  const components = [...bundled, ...others];
  const dependencies = [
    { ref: self['bom-ref'], dependsOn: components.map((one) => one['bom-ref']) },
    ...whole.dependencies
      .filter(({ ref }) => refs.includes(ref))
      .map((one) => ({ ...one, dependsOn: (one.dependsOn ?? []).filter((ref) => refs.includes(ref)) })),
  ];
  const metadata = { ...whole.metadata, timestamp: new Date(date * 1_000).toISOString(), component: self };
  const bom = { ...whole, serialNumber: undefined, metadata, components, dependencies };
  const text = JSON.stringify({ ...bom, serialNumber: serialNumber(JSON.stringify(bom)) }, null, 1);
  await writeFile(file, `${text}\n`);
}

function component(name: string, version: string, purl: string): Component {
  return { 'bom-ref': purl, type: 'library', name, version, scope: 'required', purl };
}

/** A UUID (RFC 9562, version 8) that is derived from the content. */
function serialNumber(content: string): string {
  const [, a, b, c, d, e] = /^(.{8})(.{4}).(.{3}).(.{3})(.{12})/.exec(sha256(content)) ?? [];
  return `urn:uuid:${a}-${b}-8${c}-8${d}-${e}`;
}

async function describedIn(root: string, directory: string): Promise<z.infer<typeof namedSchema>> {
  return namedSchema.parse(JSON.parse(await readFile(join(root, directory, 'package.json'), 'utf8')));
}
