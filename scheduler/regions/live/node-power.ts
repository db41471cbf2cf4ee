/** Power of nodes: modelled from the GPUs' power limits, and scaled by what the agents measure. Pure. */

/** Power of a node, watts: while it serves as many requests as it can, and while it serves none. */
export interface NodePower {
  busyW: number;
  idleW: number;
}

/** Shares of the power limit that a busy and an idle GPU are assumed to need; the simulator assumes the same. */
const [BUSY_SHARE, IDLE_SHARE] = [0.85, 0.2];
/**
 * Weight of the newest slot. An agent publishes its gauge at most every ten minutes, so only the mean over an hour says
 * something about the mean load.
 */
const WEIGHT = 0.02;
/**
 * A measured power counts only between these multiples of the modelled power: providers publish their gauges
 * themselves, and a claim of 0 W must not attract all requests.
 */
const [CLAIM_LEAST, CLAIM_MOST] = [0.3, 1.3];

export class NodePowerEstimate {
  #measuredW = 0;
  #modelledW = 0;
  #slots = 0;

  /**
   * `limitW`: power limit of all GPUs of one node; `measuredW`: mean power of the nodes with a gauge; `use`: requests in
   * the engines, as a share of those that they can serve concurrently.
   */
  observe(limitW: number, measuredW: number, use: number): void {
    const modelledW = limitW * (IDLE_SHARE + (BUSY_SHARE - IDLE_SHARE) * Math.min(1, Math.max(0, use)));
    if (!Number.isFinite(measuredW) || modelledW <= 0) return;
    const weight = Math.max(WEIGHT, 1 / ++this.#slots);
    this.#measuredW += weight * (measuredW - this.#measuredW);
    this.#modelledW += weight * (modelledW - this.#modelledW);
  }

  of(limitW: number): NodePower {
    const claimed = this.#slots === 0 ? 1 : this.#measuredW / this.#modelledW;
    const factor = Math.min(CLAIM_MOST, Math.max(CLAIM_LEAST, claimed));
    return { busyW: factor * BUSY_SHARE * limitW, idleW: factor * IDLE_SHARE * limitW };
  }
}
