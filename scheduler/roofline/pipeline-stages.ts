/** Seconds of one micro-batch: on the host of each stage, in all layers together, in the output head, and for each hop. */
export interface MicroBatchTimes {
  host: number;
  layers: number;
  head: number;
  hop: number;
}

/**
 * Share of the layers that each stage holds, as vLLM divides them: equally, and the remaining layers go one each to the stages
 * before the last, because the last one also has the output head.
 */
export function stageShares(layers: number, stages: number): number[] {
  const each = Math.floor(layers / stages);
  const left = layers - each * stages;
  return Array.from({ length: stages }, (_, i) => {
    const fromEnd = stages - i;
    const more = fromEnd >= 2 && fromEnd < 2 + left;
    return (each + Number(more)) / layers;
  });
}

/** Seconds of the slowest stage. The last stage also has the output head. */
export function slowestStage(shares: readonly number[], layers: number, head: number): number {
  let slowest = 0;
  for (const [i, share] of shares.entries())
    slowest = Math.max(slowest, share * layers + (i === shares.length - 1 ? head : 0));
  return slowest;
}
