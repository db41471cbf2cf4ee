import { UsageError } from '../../shared/command-line/index.ts';
import type { ReplicaOption } from './follow-problem.ts';

/**
 * An operator's order for one model: the number of replicas of each parallelism or, if it lists none, the replicas that
 * run now.
 */
export interface Pin {
  model: string;
  replicas: { tp: number; pp: number; count: number }[];
}

/**
 * Parses `MODEL` or `MODEL=2xtp2,1xtp1pp2`.
 *
 * @throws UsageError
 */
export function parsePin(text: string): Pin {
  const [model = '', wanted] = text.split('=', 2);
  if (model === '') throw new UsageError(`--pin ${text}: the model is missing`);
  if (wanted === undefined) return { model, replicas: [] };
  const replicas = wanted.split(',').map((part) => {
    const found = /^(\d{1,4})xtp(\d{1,3})(?:pp(\d{1,3}))?$/.exec(part.trim());
    if (found === null) throw new UsageError(`--pin ${text}: ${part} is not a layout such as 2xtp4 or 1xtp2pp2`);
    const [, count, tp, pp = '1'] = found;
    return { count: Number(count), tp: Number(tp), pp: Number(pp) };
  });
  return { model, replicas };
}

/**
 * Converts a pin to replicas by option: `running` if the pin lists no replicas, undefined if some of its replicas match
 * no option. If several pools have a matching option, the first gets the replicas.
 */
export function pinnedLayout(
  pin: Pin,
  options: readonly ReplicaOption[],
  running: readonly number[],
): number[] | undefined {
  const own = (i: number) => options[i]?.place.model === pin.model;
  if (pin.replicas.length === 0) return running.map((count, i) => (own(i) ? count : 0));
  const layout = options.map(() => 0);
  for (const { tp, pp, count } of pin.replicas) {
    const at = options.findIndex(({ place }, i) => own(i) && place.tp === tp && (place.spread?.pp ?? 1) === pp);
    if (at < 0) return undefined;
    layout[at] = (layout[at] ?? 0) + count;
  }
  return layout;
}
