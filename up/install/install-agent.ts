/** Installs the agent below ~/.otela of the host, unless an agent with the same digest is there. */
import { createReadStream } from 'node:fs';
import { createGzip } from 'node:zlib';
import type { Host } from '../host/host.ts';
import type { LoginNode } from '../site/site.ts';
import { UpError } from '../up-error.ts';
import type { AgentFile } from './agent-file.ts';

/** Space that the agent and a job's output need. */
const FREE_KIB_MIN = 400 * 1024;
/** Fastest compression: the network is the slow part only on slow networks, and half of the bytes are enough there. */
const GZIP = { level: 1 };

/** Path of the agent below the home directory. The digest is a part of it, so that a file never changes. */
export function agentPath(digest: string): string {
  return `.otela/agent/${digest.slice(0, 16)}/otela-agent`;
}

/** The host checks the digest before the file gets its name. */
function installScript(path: string, digest: string): string {
  return `set -e
umask 077
mkdir -p ~/.otela ~/${path.replace(/\/[^/]*$/, '')}
file=~/${path}
part=$file.$$
trap 'rm -f "$part"' EXIT
gzip -dc >"$part"
echo '${digest}  '"$part" | sha256sum --check --status || { echo 'the digest differs' >&2; exit 1; }
chmod 700 "$part"
mv "$part" "$file"`;
}

export const isInstalled = ({ agents }: Pick<LoginNode, 'agents'>, { digest }: AgentFile): boolean =>
  agents.includes(digest.slice(0, 16));

/** @throws UpError */
export async function installAgent(
  host: Host,
  site: Pick<LoginNode, 'freeKib' | 'host'>,
  { path, digest }: AgentFile,
): Promise<void> {
  if (site.freeKib !== undefined && site.freeKib < FREE_KIB_MIN)
    throw new UpError(
      `The home directory on ${site.host} has ${Math.floor(site.freeKib / 1024)} MiB free; otela needs ${FREE_KIB_MIN / 1024} MiB.`,
      'Remove files there, for example old caches below ~/.cache.',
    );
  await host.send(installScript(agentPath(digest), digest), createReadStream(path).pipe(createGzip(GZIP)));
}
