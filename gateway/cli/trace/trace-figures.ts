/**
 * Computes the figures of the papers' study of a serving trace, as numbers and as charts, from a trace and from samples
 * of nodes.
 */
import { NodeFigures } from './node-figures.ts';
import type { ClusterSample, NodeSample } from './node-samples.ts';
import { FIGURE_NAMES, type Figure } from './paper-figures.ts';
import { RequestFigures } from './request-figures.ts';
import type { TraceLine } from './trace-stats.ts';

export class TraceFigures {
  readonly #requests: RequestFigures;
  readonly #nodes = new NodeFigures();

  /** @param classed models whose class is `reasoning` in the operator's settings */
  constructor(classed: ReadonlySet<string>) {
    this.#requests = new RequestFigures(classed);
  }

  /** Adds a line of a trace, in any order. */
  add(line: TraceLine): void {
    this.#requests.add(line);
  }

  /** Adds a line of `trace sample`, in the order of time. */
  addSample(sample: NodeSample | ClusterSample): void {
    if ('session' in sample) this.#nodes.addNode(sample);
    else this.#nodes.addCluster(sample);
  }

  /** True if the trace was too long to remember all of it. */
  get truncated(): boolean {
    return this.#requests.truncated || this.#nodes.truncated;
  }

  /** Returns the figures for which there is data, in the order of the paper. */
  figures(): Figure[] {
    const all = [...this.#requests.figures(), ...this.#nodes.figures((model) => this.#requests.classOf(model))];
    return all.sort((a, b) => FIGURE_NAMES.indexOf(a.name) - FIGURE_NAMES.indexOf(b.name));
  }
}
