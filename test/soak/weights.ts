/**
 * Four agents pull one blob of 2 GiB with real processes, and one of them is killed (SIGKILL) on the way and started
 * again. Asserts: the source was read once (plus a piece, if the killed agent read it), the killed agent did not fetch
 * a recorded piece again (it loses at most one piece), and all four have the same bytes. `--mib 2048 --nodes 4`. Needs
 * (nodes + 1) times the blob on disk, below TMPDIR. Exit code 1: an assertion failed.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import * as z from 'zod';
import { PIECE_BYTES } from '../../shared/weights/blob-pieces.ts';
import { largeHubFolder } from '../agent/weights/cluster.ts';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { AGENT_MAIN, NODE } from '../support/where.ts';

const { values } = parseArgs({
  options: { mib: { type: 'string', default: '2048' }, nodes: { type: 'string', default: '4' } },
});
const MIB = 2 ** 20;
const BYTES = Number(values.mib) * MIB;
const DIGEST_BYTES = 32;
/** A busy machine writes and hashes some MiB a second. */
const WITHIN_MS = 3_600_000;
const run = promisify(execFile);
const pulledSchema = z.object({ path: z.string(), from_source: z.number(), from_peers: z.number(), state: z.string() });
const statusSchema = z.array(
  z.object({ weights: z.object({ pulls: z.array(z.object({ from_source: z.number() })) }) }),
);
const knownSchema = z.object({ elsewhere: z.array(z.object({ session: z.string() })) });

const { root: source, digest } = await largeHubFolder('model.safetensors', Number(values.mib));

const gateway = await Gateway.start();
const token = await gateway.createJoinToken();

async function keeper() {
  const directory = await temporaryDirectory('otela-weights');
  const env = { XDG_RUNTIME_DIR: await temporaryDirectory('otela-state') };
  const start = () => startAgent({ gateways: [gateway.url], token, args: ['--weights-dir', directory], env });
  const told = async (...words: string[]) =>
    (await run(NODE, [AGENT_MAIN, ...words, '--json'], { env: { ...process.env, ...env } })).stdout;
  const weights = (...words: string[]) => told('weights', ...words);
  return { agent: await start(), start, directory, weights, told };
}
const nodes = await Promise.all(Array.from({ length: Number(values.nodes) }, keeper));
const meet = () =>
  Promise.all(
    nodes.map(({ weights }) =>
      eventually('it knows the others', 300_000, async () => {
        const listed = await weights('ls').catch(() => '{}');
        const known = knownSchema.safeParse(JSON.parse(listed)).data?.elsewhere;
        return known?.length === nodes.length - 1 ? true : undefined;
      }),
    ),
  );
/** Bytes in pieces that a node has recorded as verified. */
async function noted({ directory }: (typeof nodes)[number]): Promise<number> {
  const blobs = join(directory, '.otela', 'blobs');
  const [name] = (await readdir(blobs).catch(() => [])).filter((one) => one.endsWith('.digests'));
  return name === undefined ? 0 : ((await stat(join(blobs, name))).size / DIGEST_BYTES) * PIECE_BYTES;
}

await meet();
const begun = performance.now();
const victim = nodes.at(-1);
if (victim === undefined) throw new Error('--nodes: at least one');
const others = nodes
  .slice(0, -1)
  .map(async ({ weights }) => pulledSchema.parse(JSON.parse(await weights('pull', source))));
const cut = victim.weights('pull', source).then(
  () => false,
  () => true,
);
await eventually('the last node has a third', WITHIN_MS, async () => (await noted(victim)) > BYTES / 3 || undefined);
const [before] = statusSchema.parse(JSON.parse(await victim.told('status')));
process.kill(victim.agent.pid, 'SIGKILL');
await victim.agent.exited;
const kept = await noted(victim);
const wasCut = await cut;
victim.agent = await victim.start();
await meet();
const again = pulledSchema.parse(JSON.parse(await victim.weights('pull', source)));
const all = [...(await Promise.all(others)), again];
const seconds = (performance.now() - begun) / 1000;

const wrong: string[] = [];
for (const { path } of all) {
  const hash = createHash('sha256');
  for await (const part of createReadStream(join(path, 'model.safetensors'))) hash.update(part as Buffer);
  if (hash.digest('hex') !== digest) wrong.push(path);
}
const readBefore = before?.weights.pulls[0]?.from_source ?? 0;
const fromSource = all.reduce((sum, { from_source }) => sum + from_source, readBefore);
const fetched = again.from_source + again.from_peers;
const report = {
  nodes: nodes.length,
  mib: BYTES / MIB,
  seconds: Math.round(seconds),
  source_reads: Number((fromSource / BYTES).toFixed(3)),
  killed_with_mib: kept / MIB,
  fetched_again_mib: Math.max(0, fetched + kept - BYTES) / MIB,
  killed_on_its_way: wasCut,
  wrong,
};
console.log(JSON.stringify(report));
await endAll();
const good =
  report.source_reads <= 1 + PIECE_BYTES / BYTES &&
  report.fetched_again_mib <= PIECE_BYTES / MIB &&
  wasCut &&
  wrong.length === 0;
process.exit(good ? 0 : 1);
