/** A source of model weights, in the notation of the command line. */

export type Source =
  /** `org/name@revision` of a Hugging Face hub. */
  | { kind: 'hub'; repository: string; revision: string }
  /** A directory or one file, for example on the shared file system. */
  | { kind: 'dir'; path: string }
  | { kind: 's3'; bucket: string; prefix: string }
  /** Python packages that a function declares. The digest is of the owner, the platform and the declared packages. */
  | { kind: 'packages'; digest: string };

const REPOSITORY = /^[A-Za-z0-9][\w.-]{0,95}(\/[A-Za-z0-9][\w.-]{0,95})?$/;
const PACKAGES = /^packages:([0-9a-f]{64})$/;
const REVISION = /^[A-Za-z0-9][\w./-]{0,127}$/;
const BUCKET = /^[a-z0-9][a-z0-9.-]{1,62}$/;

/**
 * Parses `hub:org/name@revision` (default revision `main`), `dir:/path`, `s3://bucket/prefix` or `packages:digest`;
 * undefined for any other text.
 */
export function parseSource(text: string): Source | undefined {
  if (text.startsWith('hub:')) {
    const [repository = '', revision = 'main', ...more] = text.slice('hub:'.length).split('@');
    const good = REPOSITORY.test(repository) && REVISION.test(revision) && !dotted(repository) && !dotted(revision);
    return good && more.length === 0 ? { kind: 'hub', repository, revision } : undefined;
  }
  if (text.startsWith('dir:/'))
    return text.includes('\0') ? undefined : { kind: 'dir', path: text.slice('dir:'.length) };
  const [, digest] = PACKAGES.exec(text) ?? [];
  if (digest !== undefined) return { kind: 'packages', digest };
  const [, bucket = '', prefix = ''] = /^s3:\/\/([^/]*)\/?(.*)$/.exec(text) ?? [];
  return BUCKET.test(bucket) && !prefix.includes('\0') ? { kind: 's3', bucket, prefix: trimmed(prefix) } : undefined;
}

/** Text of a source. Equal sources have equal texts, by which the nodes of a cluster identify a source. */
export function sourceText(source: Source): string {
  switch (source.kind) {
    case 'hub':
      return `hub:${source.repository}@${source.revision}`;
    case 'dir':
      return `dir:${source.path}`;
    case 's3':
      return `s3://${source.bucket}/${source.prefix}`;
    case 'packages':
      return `packages:${source.digest}`;
  }
}

/**
 * The folder of a source in a Hugging Face cache: `models--org--name`. Sources other than a hub get a name of the same
 * form.
 */
export function cacheFolder(source: Source): string {
  const name =
    source.kind === 'hub'
      ? source.repository.replaceAll('/', '--')
      : `${source.kind}--${placeOf(source)
          .replace(/^\/+|\/+$/g, '')
          .replaceAll(/[^\w.-]+/g, '--')
          .slice(-150)}`;
  return `models--${name}`;
}

function placeOf(source: Exclude<Source, { kind: 'hub' }>): string {
  if (source.kind === 'packages') return source.digest;
  return source.kind === 'dir' ? source.path : `${source.bucket}/${source.prefix}`;
}

function dotted(text: string): boolean {
  return text.split('/').some((part) => part === '.' || part === '..' || part.includes('..'));
}

function trimmed(prefix: string): string {
  return prefix.replace(/\/+$/, '');
}
