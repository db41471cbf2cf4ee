import { means } from '../../../../scheduler/regions/learned/learned-policy.ts';
import { distance2, distanceGradient, type ResidualPolicy, shapedShares } from './residual-policy.ts';
import type { Rollout } from './rollout.ts';

/**
 * (5): `epsilon` bounds the distance of a row's mean action from the teacher, `eta` is the least S_0/S_RL. Each
 * constraint has a weight, which rises by κ while it is violated and falls otherwise.
 */
const CONSTRAINT = { epsilon: 0.25, eta: 0.5, kappa: 0.1, least: 1e-3, most: 20 };
/** Weight of λ‖A_k − A_{k−1}‖² of (1) in the loss, relative to advantages of deviation 1. */
const SMOOTH = 0.3;

/** Weights λ_1, λ_2 of the two constraints. */
export interface Pulls {
  teacher: number;
  change: number;
}

export const firstPulls = (): Pulls => ({ teacher: CONSTRAINT.least, change: CONSTRAINT.least });

export interface Measured {
  /** Root mean square over rows of ‖A − A*‖ of the mean action. */
  distance: number;
  /** ‖A_k − A_{k−1}‖² of the played actions, relative to its bound S_0/η: mean over worlds. */
  change: number;
}

/** `reactive`: S_0 of each world. */
export function measure(played: readonly Rollout[], reactive: readonly number[]): Measured {
  let [squares, rows, change] = [0, 0, 0];
  for (const [at, { decisions, regions, result }] of played.entries()) {
    for (const { shapes, planned } of decisions) {
      squares += distance2(shapedShares(planned, means(shapes), regions), planned);
      rows += planned.length / regions;
    }
    change += result.shareChange / Math.max(1e-9, (reactive[at] ?? 0) / CONSTRAINT.eta) / played.length;
  }
  return { distance: Math.sqrt(squares / Math.max(1, rows)), change };
}

export function adapt(pulls: Pulls, { distance, change }: Measured): void {
  const moved = (pull: number, violated: boolean) =>
    Math.min(CONSTRAINT.most, Math.max(CONSTRAINT.least, pull * (1 + (violated ? 1 : -1) * CONSTRAINT.kappa)));
  pulls.teacher = moved(pulls.teacher, distance > CONSTRAINT.epsilon);
  pulls.change = moved(pulls.change, change > 1);
}

/** Adds the gradients of both constraints and of the smoothness, on the mean action of one slot. */
export function pullBack(
  policy: ResidualPolicy,
  { decisions, regions }: Rollout,
  slot: number,
  pulls: Pulls,
  weight: number,
): void {
  const decision = decisions[slot];
  if (decision === undefined) return;
  const { state, planned, previous } = decision;
  const shapes = policy.allShapes(state);
  const shares = shapedShares(planned, means(shapes), regions);
  const off = Math.sqrt((distance2(shares, planned) * regions) / planned.length);
  // d/dA of max(0, d − ε)² is 2(d − ε)·∇d: the pull on the squared distance, weakened near the bound.
  const beyond = Math.max(0, off - CONSTRAINT.epsilon) / Math.max(off, 1e-9);
  const byTeacher = distanceGradient(shares, planned, regions);
  const byChange = previous === undefined ? undefined : distanceGradient(shares, previous, regions);
  for (let entry = 0; entry < regions ** 2; entry++) {
    const pulled = pulls.teacher * beyond * (byTeacher[entry] ?? 0);
    const smoothed = (SMOOTH + pulls.change) * (byChange?.[entry] ?? 0);
    const byMean = (weight * (pulled + smoothed)) / regions;
    if (byMean === 0) continue;
    const [alpha, beta] = policy.shapes(state, entry);
    policy.addGradient(alpha, beta, 0.5, 0, byMean);
  }
}
