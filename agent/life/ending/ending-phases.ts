/** How each phase of the end begins: its actions, and its waits with their deadlines. Pure. */
import { formatDuration } from '../../config/duration.ts';
import { describeExit } from '../../engine/engine-process.ts';
import type { DrainCause } from '../drain-plan.ts';
import {
  type EndingAction,
  type EndingState,
  type EndingView,
  type EndReason,
  NO_DEADLINE,
  type Wait,
} from './ending-state.ts';

/** Time to pass on responses that were already arriving when the engine died. New ones cannot arrive. */
const LAST_ANSWERS_MS = 2000;

/**
 * Wait after the first sign of a broken engine, so that the other ranks' errors and the end of the traceback can
 * arrive.
 */
const LAST_OUTPUT_MS = 500;

/**
 * Maximum wait for the end of the log, which is one small upload and one small file. Neither an unreachable gateway nor
 * a disk that hangs may keep GPUs from the next job.
 */
const LOG_TAIL_WAIT_MS = 2000;

/** Time to send the results of finished lines to the gateway and to return the leases. */
const LINES_WAIT_MS = 1_000;

/** Milliseconds from SIGTERM to SIGKILL of a broken engine, which has nothing to save and often hangs in its driver. */
const BROKEN_GRACE_MS = 2000;

/** Maximum wait for the acknowledgment of LEFT if the end is forced. */
const FORCED_LEAVE_MS = 250;

export function enterPhase(
  state: EndingState,
  reason: EndReason,
  view: EndingView,
  actions: EndingAction[],
): EndingState {
  const entered = begin(state, reason, view, actions);
  return entered.forced ? withForcedWaits(entered, view.now) : entered;
}

function begin(state: EndingState, reason: EndReason, view: EndingView, actions: EndingAction[]): EndingState {
  const { now } = view;
  const act = (...kinds: SimpleAction[]) => actions.push(...kinds.map((kind) => ({ kind })));
  const waiting = (...waits: [Wait, number][]) => ({ ...state, waits: new Map(waits) });
  const [phase] = state.phases;
  if (phase === undefined) return state;
  switch (phase) {
    case 'draining':
      return beginDrain(state, reason, view, actions);
    case 'closing': {
      act('return-lines');
      const { inFlight } = view;
      if (inFlight > 0) actions.push({ kind: 'log', text: `${inFlight} requests are still running; exiting anyway` });
      const next = waiting(...(state.fateAsked ? [['fate', NO_DEADLINE] satisfies [Wait, number]] : []));
      return { ...next, linesUntil: now + LINES_WAIT_MS };
    }
    case 'answering':
      actions.push({ kind: 'down', reason: 'engine-ended' });
      act('ask-fate');
      if (reason.kind === 'engine') actions.push({ kind: 'log', text: describeExit(reason.exit) });
      act('repeat-output', ...(state.forced ? [] : ['upload-log' as const]), 'drain');
      return waiting(['requests', now + LAST_ANSWERS_MS], ['log', now + LOG_TAIL_WAIT_MS]);
    case 'asking':
      return waiting(['fate', NO_DEADLINE]);
    case 'collecting':
      actions.push({ kind: 'down', reason: 'engine-broken' });
      act('return-requests', 'watch-engine');
      if (reason.kind === 'fatal')
        actions.push({ kind: 'log', text: `the engine is broken, so this node ends: ${reason.sign}` });
      return waiting(['engine', now + LAST_OUTPUT_MS], ['returned', NO_DEADLINE]);
    case 'reporting':
      if (reason.kind === 'fatal') act('repeat-output');
      if (!state.forced) act('upload-log');
      // Wait for the upload and the lines concurrently. One after the other, they would leave less than a second before
      // SIGKILL for LEFT if a gateway does not answer.
      if (reason.kind !== 'fatal') return waiting(['log', now + LOG_TAIL_WAIT_MS], ['lines', state.linesUntil]);
      actions.push({ kind: 'stop-engine', graceMs: BROKEN_GRACE_MS });
      return { ...waiting(['log', now + LOG_TAIL_WAIT_MS]), graceMs: 0 };
    case 'leaving':
      act('leave');
      if (state.forced) actions.push({ kind: 'stop-engine', graceMs: 0 });
      // `needsLastWill` is true until the gateways have acknowledged LEFT.
      return { ...waiting(['goodbye', NO_DEADLINE]), needsLastWill: true };
    case 'stopping':
      actions.push({ kind: 'stop-engine', graceMs: state.graceMs });
      return waiting(['stopped', NO_DEADLINE]);
  }
}

/** Kinds of actions without parameters. */
type SimpleAction = Exclude<EndingAction['kind'], 'log' | 'down' | 'stop-engine' | 'ended'>;

function beginDrain(state: EndingState, reason: EndReason, view: EndingView, actions: EndingAction[]): EndingState {
  const { cause, why, published } = drainOf(reason, view);
  const plan = view.plan(cause);
  const next = { ...state, drainUntil: view.now + plan.drainMs, graceMs: plan.graceMs };
  if (reason.kind === 'drain' && why === 'SIGTERM') actions.push({ kind: 'ask-warning' });
  actions.push({ kind: 'watch-engine' });
  const most = formatDuration(plan.drainMs);
  if (reason.kind === 'drain' && !view.registers) {
    // Another rank drains. Its part of the engine still computes the requests for which rank 0 waits.
    actions.push({ kind: 'log', text: `${why}: keeping this part of the engine for at most ${most}` });
    return withDrainDeadline({ ...next, waits: new Map<Wait, number>([['engine', 0]]) });
  }
  actions.push({ kind: 'log', text: `${why}: draining ${view.inFlight} running requests for at most ${most}` });
  actions.push({ kind: 'down', reason: published });
  const fateAsked = reason.kind === 'drain' && cause === 'signal';
  if (fateAsked) actions.push({ kind: 'ask-fate' });
  actions.push({ kind: 'drain' }, { kind: 'drain-lines' });
  const waits = new Map<Wait, number>([
    ['requests', 0],
    ['lines', 0],
  ]);
  return withDrainDeadline({ ...next, waits, fateAsked });
}

function drainOf(reason: EndReason, view: EndingView): { cause: DrainCause; why: string; published: string } {
  if (reason.kind === 'drain') {
    const { cause, why } = reason;
    return { cause, why, published: view.drainReason(cause, why) };
  }
  if (reason.kind === 'fault')
    return { cause: 'request', why: `internal error of the agent: ${reason.what}`, published: 'agent-fault' };
  // All gateways have ended the session. Drain anyway, because requests of other agents and of this agent's ingress may
  // still finish.
  return { cause: 'request', why: 'the session of this agent has ended at all gateways', published: 'drain' };
}

export function withDrainDeadline(state: EndingState): EndingState {
  if (state.phases[0] !== 'draining') return state;
  const until = Math.min(state.drainUntil, state.shortUntil);
  return { ...state, waits: new Map([...state.waits.keys()].map((wait) => [wait, until])) };
}

/** Keeps only the waits that remain after a second signal. */
export function withForcedWaits(state: EndingState, now: number): EndingState {
  const remains = ([wait, until]: [Wait, number]): [Wait, number][] => {
    if (wait === 'goodbye') return [[wait, Math.min(until, now + FORCED_LEAVE_MS)]];
    const kept = wait === 'returned' || wait === 'stopped' || (wait === 'lines' && state.phases[0] === 'reporting');
    return kept ? [[wait, until]] : [];
  };
  return { ...state, waits: new Map([...state.waits].flatMap(remains)) };
}
