import type { Miss } from '../rows.ts';

const SECONDS = 'the paper gives no bounds of task times: our response is shorter because our GPUs fit the tasks';
const SHARES =
  'SkyLB keeps tasks in their region, so its shares hardly change; moving tasks to cheaper and freer regions is what ours is for';
const BALANCE =
  'GPUs differ by a factor of four, and the cheapest and quickest plan keeps the fast ones busier; SDIB, which evens them out, answers 30 % later';
const TENTH = 'for the reason of the mean balance (11)';

/**
 * Claims of the paper that ours is known to miss, by name. A claim that is not listed, or that leaves the range of its
 * miss, makes the command fail.
 */
export const MISSES: Readonly<Record<string, Miss>> = {
  'Table 1: regions of Cost2': { band: [37, 37], reason: "Cost2 is not published: SNDlib's cost266 takes its place" },
  'Figure 2: response in a surge, reactive': { band: [12, 40], reason: SECONDS },
  'Figure 2: foresight of 15 minutes against reactive': {
    band: [-53.6, -35],
    reason: 'the paper gives no times of tasks and no totals of GPUs: in our world the same surge weighs twice as much',
  },
  'Figure 8: mean response': { band: [8, 14], reason: SECONDS },
  'Figure 8: response, all servers awake': {
    band: [-15, -8],
    reason: 'against SkyLB, in the worse seeds: without activation ours cannot move models to the GPUs that suit them',
  },
  'Figure 8: response, all policies activate': {
    band: [-15, 2],
    reason:
      "two thirds of the paper's gain is activation, which loads models on the GPUs that suit them: SkyLB with it is a third quicker",
  },
  'Figure 9: power cost': {
    band: [3, 80],
    reason: 'a thousandth of the paper: its totals of servers, prices and watts are not given',
  },
  'Figure 9: cost with switching, all servers awake': {
    band: [-20, 8],
    reason:
      'servers that may not sleep use their electricity anyway: routing to cheap regions saves some percent of the rest',
  },
  'Figure 9: cost with switching, all policies activate': {
    band: [-20, 2],
    reason: 'most of the saving is sleep, and baselines with activation have it, too',
  },
  'Figure 9: cost with switching, only ours activates': {
    band: [-20, -15],
    reason: 'six hours have the peak of the load, which the quick form has not: fewer servers sleep',
  },
  'Figure 9: change of shares, all servers awake': { band: [0, 1_000], reason: SHARES },
  'Figure 9: change of shares, all policies activate': { band: [0, 1_000], reason: SHARES },
  'Figure 9: change of shares, only ours activates': { band: [0, 1_000], reason: SHARES },
  'Figure 10: balance (11)': { band: [0.5, 0.69], reason: BALANCE },
  'Figure 10: balance (11), all servers awake': { band: [-45, 4], reason: BALANCE },
  'Figure 10: balance (11), all policies activate': { band: [-25, 4], reason: BALANCE },
  'Figure 10: balance (11), only ours activates': { band: [-25, 4], reason: BALANCE },
  'Figure 10: balance in the worst tenth of slots, all servers awake': { band: [-45, 0], reason: TENTH },
  'Figure 10: balance in the worst tenth of slots, all policies activate': { band: [-25, 0], reason: TENTH },
  'Figure 10: balance in the worst tenth of slots, only ours activates': { band: [-25, 0], reason: TENTH },
  'Figure 11: waiting': {
    band: [1.1, 3],
    reason:
      'at the peak of six hours a task of ours waits for a fast GPU if it ends sooner there: SkyLB with activation waits 1.3 s less and computes 2.2 s longer',
  },
  'Figure 12: accuracy at which the response equals the best baseline': {
    band: [0.7, 0.95],
    reason:
      'SkyLB with activation, which needs no forecast, is nearer to ours than the baselines of the paper to its own',
  },
  'Theorem 1: no other shares have a shorter response and a lower cost than (2)': {
    band: [0, 0],
    reason:
      'the theorem is false: (2) has a linear cost without queues, and its marginal by capacity gives slow and dear regions as many tasks as others',
  },
  'Theorem 2: change of shares of the trained policy against the reactive baselines': {
    band: [0, 1_000],
    reason: SHARES,
  },
  'Theorem 3: the gain condition of the trained policy holds': {
    band: [0, 0],
    reason:
      'η is below 1: our shares change more than those of the reactive baselines, so the left side is negative for every policy that moves tasks',
  },
};
