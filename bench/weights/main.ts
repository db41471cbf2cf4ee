/**
 * `npm run bench:weights -- [swarm|relay|carrier|environment|tokens] [flags]`: runs one part, or all of them in order.
 * Exit code 1: a part missed its required figure.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const PARTS = ['swarm', 'relay', 'carrier', 'environment', 'tokens'] as const;
const [named, ...flags] = process.argv.slice(2);
const one = PARTS.find((part) => part === named);
if (named !== undefined && one === undefined && !named.startsWith('-')) throw new Error(`parts: ${PARTS.join(', ')}`);
const parts = one === undefined ? PARTS : [one];
const more = one === undefined ? process.argv.slice(2) : flags;
let missed = 0;
for (const part of parts) {
  const argv = [join(import.meta.dirname, `${part}.ts`), ...(parts.length === 1 || part === 'swarm' ? more : [])];
  const { status } = spawnSync(process.execPath, argv, { stdio: 'inherit' });
  if (status !== 0) missed++;
}
process.exit(missed === 0 ? 0 : 1);
