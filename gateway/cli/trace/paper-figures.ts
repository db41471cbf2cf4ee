/** The figures and tables of the study of a serving trace, in the numbering of the papers. */
import { printable } from '../../../shared/terminal/printable.ts';
import type { Chart } from '../../../shared/text/svg-chart.ts';

export interface Figure {
  /** Key of `PAPER_FIGURES`, and name of the figure's files. */
  name: FigureName;
  /** Empty for a table. */
  charts: Chart[];
  /** Single numbers by name. */
  facts: Record<string, number>;
}

interface PaperFigure {
  title: string;
  /** Number in OpenTela (OSDI '26); undefined: only the preprint has it. */
  opentela?: string;
  /** Number in the preprint, OpenFabric; undefined: only the paper has it. */
  openfabric?: string;
  /** Data without which the figure cannot be made. */
  needs: 'requests' | 'prompts' | 'nodes';
}

/** In the order of the paper. Figures 2 to 8 are not about the trace. */
export const PAPER_FIGURES = {
  'idle-gpus': { title: 'Idle GPUs by type', opentela: 'Figure 1', needs: 'nodes' },
  summary: { title: 'Summary of the trace', opentela: 'Table 2', needs: 'requests' },
  'tokens-by-model': { title: 'Tokens by model', opentela: 'Figure 9', openfabric: 'Figure 7', needs: 'requests' },
  burstiness: {
    title: 'Peak over mean tokens per minute',
    opentela: 'Figure 10',
    openfabric: 'Figure 8',
    needs: 'requests',
  },
  'burstiness-over-time': {
    title: 'Burstiness since the first request',
    opentela: 'Figure 11',
    openfabric: 'Figure 9',
    needs: 'requests',
  },
  lengths: { title: 'Lengths of the four most asked models', opentela: 'Figure 12', needs: 'requests' },
  'output-share': {
    title: 'Share of output tokens of the most asked model',
    opentela: 'Figure 13',
    openfabric: 'Figure 10',
    needs: 'requests',
  },
  'prefix-reuse': {
    title: "Reusable prefixes over a model's life",
    opentela: 'Figure 14',
    openfabric: 'Figure 12',
    needs: 'prompts',
  },
  latency: {
    title: 'Latency, output and time per token',
    opentela: 'Figure 15',
    openfabric: 'Figure 11',
    needs: 'requests',
  },
  'kv-use': { title: 'Use of the KV cache', opentela: 'Figure 16', openfabric: 'Figure 14', needs: 'nodes' },
  energy: { title: 'Power and energy per token', opentela: 'Figure 17', openfabric: 'Figure 15', needs: 'nodes' },
  predictability: { title: 'Predicted length of responses', openfabric: 'Figure 13', needs: 'requests' },
} as const satisfies Record<string, PaperFigure>;

export type FigureName = keyof typeof PAPER_FIGURES;
export const FIGURE_NAMES = Object.keys(PAPER_FIGURES) as readonly FigureName[];

/** Returns the numbers of a figure, for example `Figure 9 (OpenFabric: Figure 7)`. */
export function numberOfFigure(name: FigureName): string {
  const { opentela, openfabric }: PaperFigure = PAPER_FIGURES[name];
  if (opentela === undefined) return `OpenFabric: ${openfabric ?? ''}`;
  return openfabric === undefined ? opentela : `${opentela} (OpenFabric: ${openfabric})`;
}

/** What a missing figure needs. */
export const FIGURE_NEEDS = {
  requests: 'answered requests',
  prompts: 'prefix buckets: turn them on with `projects set ID --trace-prefixes yes`',
  nodes: 'the output of `otela-gateway trace sample`',
} as const satisfies Record<PaperFigure['needs'], string>;

/** Maximum facts of a figure in text; the file of the figure has all. */
const FACTS_SHOWN_MAX = 40;

/** Formats all figures as text, in the order of the paper, and says what each missing one needs. */
export function figuresText(figures: readonly Figure[]): string {
  return FIGURE_NAMES.map((name) => {
    const head = `${numberOfFigure(name)}: ${PAPER_FIGURES[name].title}`;
    const figure = figures.find((one) => one.name === name);
    return figure === undefined
      ? `${head}\n  no data. It needs ${FIGURE_NEEDS[PAPER_FIGURES[name].needs]}.`
      : `${head}\n${factsText(figure)}`;
  }).join('\n\n');
}

function factsText({ facts, name }: Figure): string {
  const all = Object.entries(facts);
  // A model's name comes from an agent or a file.
  const shown = all.slice(0, FACTS_SHOWN_MAX).map(([fact, value]) => [printable(fact), value] as const);
  const width = Math.max(0, ...shown.map(([fact]) => fact.length));
  const lines = shown.map(([fact, value]) => `  ${fact.padEnd(width)}  ${numberText(value)}`);
  if (all.length > shown.length) lines.push(`  … and ${all.length - shown.length} more in ${name}.json`);
  return lines.join('\n');
}

function numberText(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) || Math.abs(value) >= 1_000) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(4)));
}
