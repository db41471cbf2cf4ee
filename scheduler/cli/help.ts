export const COMMANDS = [
  'catalogue',
  'plan',
  'compare',
  'simulate',
  'validate',
  'calibrate',
  'apply',
  'watch',
  'completion',
  'help',
  'version',
] as const;

const SHARED = `
Catalogue   --gpus FILE…  --models FILE|NAME=config.json…  --calibration FILE
Engine      --max-sequences 256  --token-budget 8192  --memory-fraction 0.9  --prefix-hit 0  --no-chunked-prefill  --prefill-first  --async-scheduling`;

const PLANNING = `
            --objective gpus (fewest that keep the latency targets)|cost|latency|throughput  --budget USD/h  --latency S  --always-on MODEL…  --parallelism KIND…  --reclaim  --measured CSV  --planner FILE.ts
            --time-limit 20  --gap 0.01  --seed 1  --duration 300 (simulated seconds; 0: none)  --json
Sources     --inventory FILE|sinfo  --workload FILE, or --live --gateway URL [--key-file FILE] [--window 1h]; a file overrides its half of --live`;

const HELP: Record<string, string> = {
  catalogue: `otela-plan catalogue [--json]    GPUs and models that can be named, with sources${SHARED}`,
  plan: `otela-plan plan [--svg FILE]     which model on which GPUs, with what parallelism and weights, and why${PLANNING}${SHARED}`,
  compare: `otela-plan compare [--svg FILE]  our plan, one by size of model and one of equal parts, under the same simulation${PLANNING}${SHARED}`,
  simulate: `otela-plan simulate --model M --gpu G --rate R --input L --output L    L: 512, normal:599,822 or lognormal:599,822
            --tp 1  --pp 1  --dp 1  --ep  --sp 1  --replicas 1  --weights bf16|fp8|int8|int4|mxfp4|nvfp4  --kv bf16|fp8|int8  --cv 1
            --duration 300 | --count N | --backlog | --trace FILE [--trace-model NAME] (Azure, Mooncake, BurstGPT, our export, arrival_s,input,output)
            --policy weighted|random|round-robin|least-loaded  --prefill-replicas N --prefill-tp N --prefill-gpu G --network-gbs 25  --seed 1  --json${SHARED}`,
  validate:
    'otela-plan validate [--json] [--strict] [--fit]   the simulator against everything measured\n            --strict: exit 1 if a figure is missed; --fit: only the share kept under load, fitted anew',
  calibrate: `otela-plan calibrate --url http://localhost:8000 --gpu G    a calibration of this GPU and engine from a short load on an idle engine (10 minutes)
            --model M (where the catalogue calls it otherwise)  --served NAME  --tp 1  --weights …  --max-sequences 128  --minutes 10  --key-file FILE  --out FILE${SHARED}`,
  apply: `otela-plan apply                 one round of the controller: plans from the network, then starts what is missing (dry run without --yes)
            --gateway URL --key-file FILE  --workload FILE (else what the gateway saw in --window 10m)
            --agents (deploy to agents that wait)  --inventory FILE --slurm TEMPLATE (start jobs on what Slurm offers); one of the two, or both
            --state otela-plan.state.json  --weights  --retry  --rollback  --stop  --yes${PLANNING}${SHARED}`,
  watch:
    'otela-plan watch                 apply, again whenever a node is idle, a model has no replica or the load is 20 % off for 10 minutes\n            --every 30 (seconds) and all of apply',
  completion: 'otela-plan completion bash|zsh|fish   for a shell: source <(otela-plan completion bash)',
};

/** What stands beside a command's name. */
export function summaryOf(command: string): string {
  const [first = ''] = (HELP[command] ?? '').split('\n');
  return first.split(/ {2,}/).at(-1) ?? '';
}

export function help(command: string | undefined): string {
  const one = command === undefined ? undefined : HELP[command];
  if (one !== undefined) return one;
  const lines = Object.values(HELP).map((text) => text.split('\n')[0]);
  return `otela-plan: placement of models on GPUs\n\n${lines.join('\n')}\n\notela-plan COMMAND --help says more. Exit codes: 0 done, 2 wrong use, 3 no feasible plan, 4 time limit, 69 gateway, 70 failed, 75 busy.`;
}
