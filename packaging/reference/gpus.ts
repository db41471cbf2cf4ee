import table from '../../shared/hardware/gpus.json' with { type: 'json' };
import { code, markdownTable } from './table.ts';

/** Every GPU that the planner knows, from the table that agents, the factory and the planner read. */
export function gpusPage(): string {
  const head = ['id', 'class', 'memory GB', 'GB/s', 'bf16', 'fp8', 'fp4', 'link', 'link GB/s', 'W', 'source'];
  const rows = table.gpus.map((gpu) => [
    code(gpu.id),
    gpu.class,
    ...[gpu.memory_gb, gpu.bandwidth_gbs, gpu.bf16_tflops].map(String),
    ...['fp8_tflops', 'fp4_tflops'].map((name) =>
      String(Object.entries(gpu).find(([key]) => key === name)?.[1] ?? '–'),
    ),
    gpu.link,
    String(gpu.link_gbs),
    String(gpu.watts),
    gpu.source,
  ]);
  const classes = table.classes.map((one) => [
    code(one.name),
    one.vendor,
    one.memoryGib.join(', '),
    one.aliases.join(', '),
  ]);
  return [
    '# GPUs',
    'Dense TFLOP/s without sparsity. Memory is what the driver reports, in 10⁹ bytes. Links are both directions together, per GPU. Your own rows: `--gpus FILE` of [`otela-plan`](otela-plan.md).',
    markdownTable(head, rows),
    '## Classes',
    'A class is what `x-otela-require: gpu=` and pools name. Memory is in GiB, as sold.',
    markdownTable(['class', 'vendor', 'memory GiB', 'names'], classes),
  ].join('\n\n');
}
