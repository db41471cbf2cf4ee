/**
 * `npm run bench:growth`: what a gateway costs with 10 to 10,000 connected agents and 10 to 1,000 models. Method:
 * bench/README.md. `--agents 10,1000,10000` and `--seconds N` (of idleness); `--quick` only tests that it runs. Prints
 * one row of JSON for each number of agents, and the cost of choosing a node.
 */
import { parseArgs } from 'node:util';
import { aboutMachine, watchMachine } from '../machine.ts';
import { run } from '../run.ts';
import { type ChoosingPlan, chooseMicros } from './choosing.ts';
import { crowdOfAgents } from './crowd-of-agents.ts';

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    agents: { type: 'string', default: '10,1000,10000' },
    models: { type: 'string', default: '100' },
    seconds: { type: 'string', default: '30' },
  },
});

const PLANS: ChoosingPlan[] = [false, true].flatMap((conversations) => [
  { nodes: 10, models: 1, conversations },
  { nodes: 1_000, models: 1, conversations },
  { nodes: 10_000, models: 1, conversations },
  { nodes: 10_000, models: 1_000, conversations },
]);

async function main(): Promise<number> {
  const measuredOn = watchMachine();
  for (const plan of PLANS) console.log(JSON.stringify({ ...plan, chooseMicros: round(chooseMicros(plan)) }));
  const sizes = values.quick ? [10] : values.agents.split(',').map(Number).filter(Boolean);
  for (const agents of sizes) {
    const found = await crowdOfAgents(agents, Number(values.models), values.quick ? 1 : Number(values.seconds));
    console.log(
      JSON.stringify(
        { ...found, chooseMicros: round(chooseMicros({ nodes: agents, models: 1, conversations: false })) },
        rounded,
      ),
    );
  }
  console.log(`\n${aboutMachine(measuredOn())}`);
  return 0;
}

const round = (value: number) => Math.round(value * 100) / 100;
const rounded = (_: string, value: unknown) => (typeof value === 'number' ? round(value) : value);

await run(main);
