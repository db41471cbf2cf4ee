/**
 * `node test/real/main.ts [--replicas N] [--ready SECONDS] [--only PATTERN] -- COMMAND …`: a real engine behind agent
 * and gateway, called directly and through them. `{port}` in the command is the engine's port; with three replicas the
 * checks that kill engines run too.
 *
 *     node test/real/main.ts --replicas 3 -- vllm serve NAME --port {port} --gpu-memory-utilization 0.25
 *
 * Not part of `npm test`, which uses mock engines, because it needs a GPU. Exit code 1 if anything failed.
 */
import { parseArgs } from 'node:util';
import { run } from '../../bench/run.ts';
import { NotThere } from './answers.ts';
import { CHECKS } from './checks.ts';
import { openPlace } from './place.ts';

const { values, positionals } = parseArgs({
  options: {
    replicas: { type: 'string', default: '1' },
    ready: { type: 'string', default: '900' },
    only: { type: 'string', default: '' },
  },
  allowPositionals: true,
});
const TOLD_MAX = 2_000;
const count = Number(values.replicas);

async function main(): Promise<number> {
  if (!positionals.some((word) => word.includes('{port}')) || !(count >= 1)) {
    console.error('behind -- stands the engine’s command, with {port} in it; --replicas is a number from 1 on');
    return 2;
  }
  const place = await openPlace(positionals, count, Number(values.ready) * 1_000);
  const seen = { ok: 0, failed: 0, 'not there': 0 };
  for (const { what, replicas = 1, talks = false, run: look } of CHECKS) {
    if (!new RegExp(values.only).test(what)) continue;
    let word: keyof typeof seen = 'ok';
    let told: string;
    try {
      if (replicas > place.replicas.length) throw new NotThere(`takes ${replicas} replicas`);
      if (talks && !place.talks) throw new NotThere('its model does not talk');
      told = await look(place);
    } catch (error) {
      word = error instanceof NotThere ? 'not there' : 'failed';
      told = error instanceof Error ? `${error.message} ${error.cause ?? ''}` : String(error);
    }
    seen[word]++;
    // An error's first line is followed by the output of all programs until then, which helps to find the cause.
    console.log(`${word.padEnd(9)}  ${what}: ${word === 'failed' ? told.slice(0, TOLD_MAX) : told}`);
  }
  console.log(`\n${seen.ok} ok, ${seen.failed} failed, ${seen['not there']} not there`);
  return seen.failed === 0 && seen.ok > 0 ? 0 : 1;
}

await run(main);
