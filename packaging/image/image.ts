/**
 * Makes the container image: Debian's C libraries, Node and the npm package, in one layer that mmdebstrap makes. The
 * file has the form of `docker save`: an OCI layout
 * (https://github.com/opencontainers/image-spec/blob/main/image-layout.md) with the older `manifest.json`, so that
 * docker and podman of any version load it.
 */
import { execFile } from 'node:child_process';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createGzip } from 'node:zlib';
import type { Platform } from '../../shared/release/release-manifest.ts';
import { sha256OfFile, writeArchive } from '../archives.ts';
import { sha256 } from '../node-binaries.ts';

const ROOT_SCRIPT = fileURLToPath(new URL('root.sh', import.meta.url));
const SUITE = 'trixie';
/** Debian's packages in the image: libraries that Node links to, and busybox as a shell for debugging. */
const PACKAGES = ['base-files', 'busybox-static', 'libc6', 'libstdc++6'];
const ARCHITECTURES: Record<Platform, string> = { 'linux-x64': 'amd64', 'linux-arm64': 'arm64' };
const PROBE =
  "fetch('http://127.0.0.1:8787/readyz').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))";
const SECOND_NS = 1_000_000_000;

interface ImageOptions {
  platform: Platform;
  version: string;
  license: string;
  /** Directory with the unpacked npm package. */
  stage: string;
  /** Path of the Node binary for the platform. */
  node: string;
  /** Directory for intermediate files. */
  work: string;
  /** Date of all files, seconds since 1970. */
  date: number;
}

function imageFile(version: string, platform: Platform): string {
  return `opentela-image-${version}-${platform}.tar`;
}

interface DebianPackage {
  name: string;
  version: string;
  architecture: string;
}

/**
 * Writes the image `opentela:VERSION` into `out`; resolves with the file's name. @throws Error if mmdebstrap is missing
 */
export async function image(out: string, options: ImageOptions): Promise<{ name: string; debian: DebianPackage[] }> {
  const { platform, version, work, date } = options;
  const layout = join(work, `image-${platform}`);
  const blobs = join(layout, 'blobs/sha256');
  await mkdir(blobs, { recursive: true });
  const layer = await layerOf(options);
  const debian = await debianPackages(layer);
  const diffId = `sha256:${await sha256OfFile(layer)}`;
  await pipeline(createReadStream(layer), createGzip(), createWriteStream(`${layer}.gz`));
  const blob = await sha256OfFile(`${layer}.gz`);
  const layerBytes = (await stat(`${layer}.gz`)).size;
  await rename(`${layer}.gz`, join(blobs, blob));
  const addBlob = async (content: object) => {
    const text = JSON.stringify(content);
    const digest = sha256(text);
    await writeFile(join(blobs, digest), text);
    return { digest: `sha256:${digest}`, size: text.length };
  };
  const config = await addBlob(configOf(options, diffId));
  const manifest = await addBlob({
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', ...config },
    layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', digest: `sha256:${blob}`, size: layerBytes }],
  });
  const tag = `opentela:${version}`;
  const annotations = {
    'io.containerd.image.name': `docker.io/library/${tag}`,
    'org.opencontainers.image.ref.name': version,
  };
  const top = {
    'oci-layout': { imageLayoutVersion: '1.0.0' },
    'index.json': {
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.index.v1+json',
      manifests: [{ mediaType: 'application/vnd.oci.image.manifest.v1+json', ...manifest, annotations }],
    },
    'manifest.json': [{ Config: pathOf(config.digest), RepoTags: [tag], Layers: [pathOf(`sha256:${blob}`)] }],
  };
  for (const [name, content] of Object.entries(top)) await writeFile(join(layout, name), JSON.stringify(content));
  const name = imageFile(version, platform);
  const paths = [...Object.keys(top), ...[config.digest, manifest.digest, `sha256:${blob}`].map(pathOf)];
  await writeArchive(join(out, name), { cwd: layout, paths, date, gzip: false });
  return { name, debian };
}

function pathOf(digest: string): string {
  return `blobs/${digest.replace(':', '/')}`;
}

/** Makes a reproducible tar file of the root file system from Debian's packages, the stage, Node and the date. */
async function layerOf({ platform, stage, node, work, date }: ImageOptions): Promise<string> {
  const layer = join(work, `layer-${platform}.tar`);
  const args = [
    '--quiet',
    '--variant=extract',
    `--architectures=${ARCHITECTURES[platform]}`,
    `--include=${PACKAGES.join(',')}`,
    '--skip=output/dev',
    `--extract-hook="${ROOT_SCRIPT}" "$1" "${stage}" "${node}"`,
    SUITE,
    layer,
  ];
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(date) };
  await promisify(execFile)('mmdebstrap', args, { env }).catch((cause: Error & { code?: unknown }) => {
    if (cause.code !== 'ENOENT') throw cause;
    throw new Error('there is no mmdebstrap here (Debian: apt-get install mmdebstrap)');
  });
  return layer;
}

/** Reads the package list that root.sh wrote into the layer for vulnerability scanners. */
export async function debianPackages(layer: string): Promise<DebianPackage[]> {
  const args = ['-xOf', layer, '--wildcards', './var/lib/dpkg/status.d/*'];
  const { stdout } = await promisify(execFile)('tar', args);
  const values = (field: string) =>
    [...stdout.matchAll(new RegExp(`^${field}: (.*)$`, 'gm'))].map(([, value = '']) => value);
  const [versions, architectures] = [values('Version'), values('Architecture')];
  return values('Package').map((name, n) => ({
    name,
    version: versions[n] ?? '',
    architecture: architectures[n] ?? '',
  }));
}

function configOf({ platform, version, license, date }: ImageOptions, diffId: string): object {
  return {
    created: new Date(date * 1_000).toISOString(),
    architecture: ARCHITECTURES[platform],
    os: 'linux',
    config: {
      User: '1000:1000',
      ExposedPorts: { '8787/tcp': {} },
      Env: ['PATH=/usr/local/bin:/usr/bin:/bin', 'HOME=/tmp'],
      Entrypoint: ['otela-gateway'],
      Cmd: ['serve', '--data', '/data', '--host', '0.0.0.0'],
      Volumes: { '/data': {} },
      WorkingDir: '/',
      StopSignal: 'SIGTERM',
      Labels: {
        'org.opencontainers.image.title': 'opentela',
        'org.opencontainers.image.version': version,
        'org.opencontainers.image.licenses': license,
      },
      Healthcheck: {
        Test: ['CMD', 'node', '-e', PROBE],
        Interval: 10 * SECOND_NS,
        Timeout: 5 * SECOND_NS,
        StartPeriod: 60 * SECOND_NS,
      },
    },
    rootfs: { type: 'layers', diff_ids: [diffId] },
    history: [{ created: new Date(date * 1_000).toISOString(), created_by: 'npm run release' }],
  };
}
