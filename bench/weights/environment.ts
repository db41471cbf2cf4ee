/**
 * What a start in a Python environment requests from the shared file system: with a venv stored there, and with one
 * that is distributed. Measured: a real venv of this machine's Python with its pip, one start of pip's installer from
 * it (operations as Python's importer makes them), and the agent's own code for this many nodes in one process.
 * Extrapolated from that: `--nodes 64` together, also with the sizes in the paper arXiv 2509.13201 (3.7 GB of weights,
 * 3.7 GB of packed environment, a file system with 84 Gb/s, links with 10 Gb/s). Exit code 1: more than one read of the
 * source.
 */
import { execFile } from 'node:child_process';
import { rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import * as z from 'zod';
import { openSource } from '../../agent/weights/sources/open-source.ts';
import { PULL_LIMITS } from '../../agent/weights/weights-config.ts';
import { FANOUT } from '../../shared/weights/blob-coordinator.ts';
import { Cluster } from '../../test/agent/weights/cluster.ts';
import { which } from '../../test/support/abilities.ts';
import { endAll, temporaryDirectory } from '../../test/support/processes.ts';

const { values } = parseArgs({
  options: { nodes: { type: 'string', default: '64' }, pulls: { type: 'string', default: '8' } },
});
const [nodes, pulls] = [Number(values.nodes), Number(values.pulls)];
const run = promisify(execFile);

/** A list is stat, readlink, stat; a read is readlink, stat, open; see `agent/weights/sources/directory-source.ts`. */
const OPERATIONS_PER_CALL = 3;
const PAPER = { weightsGB: 3.7, packedGB: 3.7, fileSystemGbPerS: 84, linkGbPerS: 10 };

/** Counts the importer's operations on the file system below the environment. */
const COUNTED = `
import importlib._bootstrap_external as importer, json, os, sys
counts = {"stat": 0, "list": 0, "open": 0, "bytes": 0}
inside = lambda path: isinstance(path, str) and path.startswith(sys.prefix)
real = importer._path_stat
def counted(path):
    counts["stat"] += inside(path)
    return real(path)
importer._path_stat = counted
def hook(event, args):
    if event == "open" and inside(args[0]):
        counts["open"] += 1
        try: counts["bytes"] += os.path.getsize(args[0])
        except OSError: pass
    elif event == "os.listdir" and inside(args[0]): counts["list"] += 1
sys.addaudithook(hook)
import pip._internal.commands.install, pip._internal.cli.main
told = dict(counts)
print(json.dumps(told))
`;
const countsSchema = z.object({ stat: z.number(), list: z.number(), open: z.number(), bytes: z.number() });

const python = which('python3');
if (python === undefined) throw new Error('not installed: python3');
const place = await temporaryDirectory('otela-venv');
const venv = join(place, 'venv');
await run(python, ['-m', 'venv', '--copies', venv]);
const { stdout } = await run(join(venv, 'bin/python3'), ['-c', COUNTED]);
const start = countsSchema.parse(JSON.parse(stdout));
const operations = start.stat + start.list + start.open;
const packed = join(place, 'env.tar.gz');
await run('tar', ['-C', venv, '-czf', packed, '.']);
await rm(venv, { recursive: true });

let [bytes, calls] = [0, 0];
const cluster = new Cluster();
await cluster.of(pulls, {
  weights: {
    limits: PULL_LIMITS,
    openSource: (source, env) => {
      const real = openSource(source, env);
      return {
        list: (signal) => {
          calls++;
          return real.list(signal);
        },
        async *read(...args) {
          calls++;
          for await (const chunk of real.read(...args)) {
            bytes += chunk.length;
            yield chunk;
          }
        },
      };
    },
  },
});
const source = `dir:${packed}`;
await Promise.all(cluster.nodes.map((node) => node.weights.environment(source)));
const late = await cluster.add();
const begun = performance.now();
const { unpackedBytes } = await late.weights.environment(source);
const neighbourS = (performance.now() - begun) / 1000;

const { size } = await stat(packed);
const contextGB = PAPER.weightsGB + PAPER.packedGB;
const transferS = (contextGB * 8) / PAPER.linkGbPerS;
const fileSystemS = (gigabytes: number) => Number(((gigabytes * 8) / PAPER.fileSystemGbPerS).toFixed(1));
console.log(
  JSON.stringify(
    {
      measured: {
        one_start_from_shared: { operations, bytes: start.bytes },
        travels: { nodes: pulls, operations: calls * OPERATIONS_PER_CALL, bytes, packed_bytes: size },
        start_beside_a_neighbour: { seconds: Number(neighbourS.toFixed(2)), unpacked_bytes: unpackedBytes },
      },
      [`${nodes}_starts_at_once`]: {
        from_shared: { operations: nodes * operations, bytes: nodes * start.bytes },
        travels: { operations: calls * OPERATIONS_PER_CALL, bytes },
      },
      [`paper_context_${nodes}_at_once`]: {
        from_shared: { gigabytes: nodes * contextGB, file_system_s: fileSystemS(nodes * contextGB) },
        travels: {
          gigabytes: contextGB,
          file_system_s: fileSystemS(contextGB),
          all_have_it_after_s: Number((FANOUT * transferS).toFixed(1)),
        },
      },
    },
    null,
    2,
  ),
);
await endAll();
process.exit(bytes === size && calls === 2 ? 0 : 1);
